"""Strict JSON with places: the value, and where in the text every part of it stands.

Reads with a stack of its own, so depth never meets Python's recursion limit. Finds all duplicate
keys, lone surrogates, impossible numbers, comments and misplaced commas in one go, and stops only at
the first fault after which nothing more can be understood. Source: sequence-format 1. The easy
mistake: Python's `json`, which takes `NaN`, lone surrogates and duplicate keys.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from orch8_local.errors import InputError, Problem

Json = Any

MAX_DEPTH = 320
"""Levels of arrays and objects; deeper text is refused. 64 blocks fit, Python's stack is far away.
Beyond PORTABLE_DEPTH a server refuses it."""
PORTABLE_DEPTH = 127
LONGEST_PLACE = 24
_LONGEST_INTEGER = 4000

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_WORD = re.compile(r"[-+]?[\w.]+|.", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "null": None}
_MEANT = {"True": "true", "False": "false", "None": "null", "undefined": "null", "nil": "null"}
_NOT_FINITE = ("nan", "inf", "infinity")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(slots=True)
class JsonSource:
    """A parsed text. places: JSON pointer -> (offset of the value, offset of its key or -1)."""

    text: str
    value: Json = None
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    depth: int = 0
    unread: set[str] = field(default_factory=set)
    """Pointers of values that could not be read; null stands for each."""
    _line_starts: list[int] = field(default_factory=list)

    @property
    def is_readable(self) -> bool:
        """True if the text is one JSON value, whatever else is wrong with it."""
        return "" in self.places and not any(p.code in _FATAL for p in self.problems)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Both from 1, in characters."""
        if not self._line_starts:
            self._line_starts = [0, *(m.end() for m in re.finditer("\n", self.text))]
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def place(self, pointer: str, *, is_key: bool = False, index: int | None = None) -> tuple[int, int]:
        """Line and column of a value, of its key, or of character `index` of a string; the nearest known
        place for a pointer that leads nowhere."""
        while pointer and pointer not in self.places:
            pointer = pointer.rpartition("/")[0]
        at, key_at = self.places.get(pointer, (0, -1))
        if is_key and key_at >= 0:
            at = key_at
        elif index is not None and self.text[at : at + 1] == '"':
            at = self.character(at + 1, index)
        return self.line_and_column(at)

    def character(self, at: int, index: int) -> int:
        """The offset of the character `index` of the string whose first character is at `at`."""
        for _ in range(index):
            if self.text[at : at + 1] in ('"', ""):
                break
            if self.text[at] != "\\":
                at += 1
            elif self.text[at + 1 : at + 2] != "u":
                at += 2
            else:
                is_pair = self.text[at + 2 : at + 4].lower() in ("d8", "d9", "da", "db")
                at += 12 if is_pair and self.text[at + 6 : at + 8] == "\\u" else 6
        return at


class _Stop(Exception):
    """Nothing after this place can be understood."""


_FATAL = frozenset({"json.syntax", "json.empty", "json.depth", "json.encoding"})


def parse_json(text: str | bytes) -> JsonSource:
    """Parse; never raises. What is wrong is in `problems`, in the order of the text."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            source = JsonSource(error.object[: error.start].decode("utf-8"))
            line, column = source.line_and_column(len(source.text))
            message = f"the text is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
            problem = Problem("json.encoding", message, line=line, column=column, suggestion="save it as UTF-8")
            source.problems.append(problem)
            return source
    reader = _Reader(text)
    with suppress(_Stop):
        reader.read()
    return reader.source


def loads_strict(text: str | bytes, source: str = "input") -> Json:
    """The value of a JSON text; InputError with `source:line:column` for the first thing wrong.

    A text without a fault is read by the C decoder; only what that refuses is read for its places.
    """
    try:
        return _faultless(text)
    except (ValueError, RecursionError):
        parsed = parse_json(text)
    if not parsed.problems:
        return parsed.value
    first = parsed.problems[0]
    more = f" (and {len(parsed.problems) - 1} more)" if len(parsed.problems) > 1 else ""
    raise InputError(
        f"{source}:{first.line}:{first.column}: {first.message}{more}",
        hint=first.suggestion,
        details={"problems": [problem.as_dict() for problem in parsed.problems], "source": source},
    )


def _faultless(text: str | bytes) -> Json:
    """The value if nothing at all is wrong or doubtful; otherwise ValueError or RecursionError."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if _DOUBTFUL.search(text):
        raise ValueError("has to be read with care")
    text.encode("utf-8")  # a lone surrogate has no bytes
    value = _DECODER.decode(text)
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError("too deep")
    return value


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(sorted(found.items()))


def _depth(value: Json) -> int:
    depth, level = 0, [value]
    while containers := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
    return depth


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("out of range")
    return number


def _refused(text: str) -> Json:
    raise ValueError(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refused)
_DOUBTFUL = re.compile(r"\\u[dD][89a-fA-F]|-0(?![.eE0-9])")


class _Reader:
    def __init__(self, text: str) -> None:
        self.source = JsonSource(text)
        self._text = text
        self._at = 0

    def read(self) -> None:
        """The whole text."""
        if self._text.startswith("\ufeff"):
            self._problem("json.bom", "the text begins with a byte order mark", 0, "save it as UTF-8 without BOM")
            self._at = 1
        self._skip()
        if self._at >= len(self._text):
            raise self._stop("json.empty", "there is no JSON in it", 'a sequence is an object: {"name": …}')
        self.source.value = self._value()
        self._skip()
        if self._at < len(self._text):
            message = f"{self._found()} follows the end of the JSON value"
            self._problem("json.trailing", message, self._at, "a file holds one value")

    # --- structure, without recursion ----------------------------------------------------------

    def _value(self) -> Json:
        """One value and all below it. `open_` holds (container, pointer) of what is not yet closed."""
        open_: list[tuple[Any, str]] = []
        pointer, key_at = "", -1
        while True:
            self._skip()
            self.source.places.setdefault(pointer, (self._at, key_at))
            self._pointer = pointer
            value, is_open = self._begin_value()
            self._attach(open_, pointer, value)
            if is_open:
                open_.append((value, pointer))
                self.source.depth = max(self.source.depth, len(open_))
                if len(open_) > MAX_DEPTH:
                    self._at -= 1
                    raise self._stop("json.depth", f"nested more than {MAX_DEPTH} levels deep", "flatten it")
            elif not open_:
                return value
            following = self._following(open_, is_first=is_open)
            if following is None:
                return self._root
            pointer, key_at = following

    _root: Json = None
    _pointer = ""

    def _attach(self, open_: list[tuple[Any, str]], pointer: str, value: Json) -> None:
        if not open_:
            self._root = value
            return
        container, _ = open_[-1]
        if isinstance(container, list):
            container.append(value)
        else:
            container[self._key] = value

    _key = ""

    def _following(self, open_: list[tuple[Any, str]], *, is_first: bool) -> tuple[str, int] | None:
        """Where the next value goes: (pointer, offset of its key), or None after the last bracket."""
        while open_:
            container, pointer = open_[-1]
            closing = "]" if isinstance(container, list) else "}"
            self._skip()
            if not is_first:
                self._comma(closing)
            if self._peek() == closing:
                self._at += 1
                open_.pop()
                if isinstance(container, dict):
                    _sort(container)
                is_first = False
                continue
            if isinstance(container, list):
                return f"{pointer}/{len(container)}", -1
            return self._member(container, pointer)
        return None

    def _comma(self, closing: str) -> None:
        """Past the comma between two entries; one that is missing or follows the last is reported."""
        if self._peek() == closing:
            return
        if self._peek() == ",":
            comma_at = self._at
            self._at += 1
            self._skip()
            if self._peek() == closing:
                message = "a comma before the closing bracket"
                self._problem("json.comma", message, comma_at, "take the comma out")
            return
        begins_entry = self._peek() == '"' or (closing == "]" and self._peek() in ("{", "["))
        if not begins_entry:
            raise self._stop("json.syntax", f"expected ',' or '{closing}', found {self._found()}", None)
        self._problem("json.comma", f"expected ',' before {self._found()}", self._at, "put a comma there")

    def _member(self, container: dict[str, Json], pointer: str) -> tuple[str, int]:
        key_at = self._at
        if self._peek() != '"':
            hint = 'write "name": value'
            raise self._stop("json.syntax", f"expected a key in double quotes, found {self._found()}", hint)
        key = self._string()
        self._skip()
        if self._peek() != ":":
            raise self._stop("json.syntax", f"expected ':' after the key {key[:40]!r}", None)
        self._at += 1
        path = self._pointer = f"{pointer}/{escaped(key)}"
        if key in container:
            first = self.source.line_and_column(self.source.places[path][1])
            message = f"the key {key[:40]!r} stands here for the second time; the first is in line {first[0]}"
            self._problem("json.duplicate_key", message, key_at, "take one of the two out", has_place=True)
        self._key = key
        return path, key_at

    # --- scalars -------------------------------------------------------------------------------

    def _begin_value(self) -> tuple[Json, bool]:
        """(value, True if it is a container that has just been opened)."""
        character = self._peek()
        if character == "{":
            self._at += 1
            return {}, True
        if character == "[":
            self._at += 1
            return [], True
        if character == '"':
            return self._string(), False
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            return self._number(number), False
        word = self._word()
        if word in _CONSTANTS:
            self._at += len(word)
            return _CONSTANTS[word], False
        self._no_value(word)
        return None, False

    def _no_value(self, word: str) -> None:
        """Report a word that is no value and go on behind it; stop where there is no word."""
        if not word:
            raise self._stop("json.syntax", "the text ends where a value is expected", "is the file complete?")
        if not (word[0].isalnum() or word[0] in "+-._"):
            hints = {"'": "text stands in double quotes", "]": "write a value", "}": "write a value"}
            raise self._stop("json.syntax", f"expected a value, found {self._found()}", hints.get(word))
        if word.lower().lstrip("+-") in _NOT_FINITE:
            self._unreadable("json.number", f"{word} is no number of JSON", "write null or a number")
        elif word[0].isalpha() or word[0] == "_":
            near = difflib.get_close_matches(word, _CONSTANTS, n=1)
            hint = f"write {_MEANT.get(word) or near[0]}" if word in _MEANT or near else None
            message = f"{self._found()} is no value of JSON"
            self._unreadable("json.word", message, hint or "text stands in double quotes")
        else:
            message = f"{self._found()} is not a number"
            self._unreadable("json.number", message, "numbers look like 12, -0.5 or 1e3")
        self._at += len(word)

    def _unreadable(self, code: str, message: str, hint: str | None, at: int | None = None) -> None:
        """Report a value that cannot be read; null stands for it."""
        self._problem(code, message, self._at if at is None else at, hint, has_place=True)
        self.source.unread.add(self._pointer)

    def _number(self, found: re.Match[str]) -> int | float | None:
        text, at = found.group(), self._at
        after = self._text[found.end() : found.end() + 1]
        if after and (after.isalnum() or after in "._+"):
            self._no_value(self._word())
            return None
        self._at = found.end()
        if found.group(1) is None and found.group(2) is None:
            if len(text) > _LONGEST_INTEGER:
                message = f"a number of {len(text)} digits is too long"
                self._unreadable("json.number", message, "write it as text", at)
                return None
            return -0.0 if text == "-0" else int(text)
        number = float(text)
        if not math.isfinite(number):
            message = f"{text[:40]} is too large for a number"
            self._unreadable("json.number", message, "the largest is about 1.8e308", at)
            return None
        return number

    def _string(self) -> str:
        start = self._at
        self._at += 1
        pieces: list[str] = []
        while True:
            plain = _PLAIN.match(self._text, self._at)
            assert plain is not None
            pieces.append(plain.group())
            self._at = plain.end()
            character = self._peek()
            if character == '"':
                self._at += 1
                return self._paired("".join(pieces), start)
            if character == "\\":
                pieces.append(self._escape())
            elif not character:
                self._at = start
                raise self._stop("json.syntax", "this text has no closing quote", 'add "')
            else:
                message = f"a control character (U+{ord(character):04X}) stands in a text"
                hint = f"write it as {json.dumps(character)[1:-1]}"
                self._problem("json.control", message, self._at, hint, has_place=True)
                self._at += 1
                pieces.append(character)

    def _escape(self) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in _ESCAPES and letter:
            self._at += 2
            return _ESCAPES[letter]
        digits = self._text[self._at + 2 : self._at + 6]
        if letter != "u" or not re.fullmatch("[0-9a-fA-F]{4}", digits):
            message = f"'\\{printable(letter)}' is no escape"
            self._problem("json.escape", message, self._at, "a backslash is written \\\\", has_place=True)
            self._at += 1
            return "\\"
        self._at += 6
        return chr(int(digits, 16))

    def _paired(self, text: str, start: int) -> str:
        """Surrogate pairs as the one character that they are; a lone one is a fault."""
        if not _SURROGATE.search(text):
            return text
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        lone = _SURROGATE.search(text)
        if lone is None:
            return text
        at = self.source.character(start + 1, lone.start())
        message = f"half a character stands in a text (the lone surrogate U+{ord(lone.group()):04X})"
        self._problem("json.surrogate", message, at, "write the character itself", has_place=True)
        return printable(text)

    # --- little things -------------------------------------------------------------------------

    def _skip(self) -> None:
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            comment = _COMMENT.match(self._text, self._at)
            if comment is None:
                return
            self._problem("json.comment", "JSON has no comments", self._at, 'a "description" can say it')
            self._at = comment.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _word(self) -> str:
        found = _WORD.match(self._text, self._at)
        return found.group() if found else ""

    def _found(self) -> str:
        return repr(self._word()[:40]) if self._at < len(self._text) else "the end of the text"

    def _problem(self, code: str, message: str, at: int, suggestion: str | None, *, has_place: bool = False) -> None:
        """Report a fault at an offset; has_place: of the value that is being read, or of its key."""
        line, column = self.source.line_and_column(at)
        pointer = self._pointer if has_place else ""
        text = f"{place_in_words(pointer)}: {message}" if pointer else message
        self.source.problems.append(Problem(code, text, path=pointer, line=line, column=column, suggestion=suggestion))

    def _stop(self, code: str, message: str, suggestion: str | None) -> _Stop:
        self._problem(code, message, self._at, suggestion)
        return _Stop(message)


def _sort(members: dict[str, Json]) -> None:
    """By key, as the format keeps them from parsing on."""
    ordered = sorted(members.items())
    members.clear()
    members.update(ordered)


def printable(text: str) -> str:
    """Text that has a UTF-8 form: half a character becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def place_in_words(pointer: str) -> str:
    """A JSON pointer for people: `blocks[2].retry.max_attempts`; "" for the whole document."""
    parts = []
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if name.isdecimal() and name.isascii():
            parts.append(f"[{name}]")
        elif re.fullmatch(r"[\w$-]+", name):
            parts.append(f".{name}" if parts else name)
        else:
            parts.append(f"[{json.dumps(name, ensure_ascii=False)}]")
    if len(parts) > LONGEST_PLACE:
        parts[LONGEST_PLACE // 2 : -LONGEST_PLACE // 2] = [" … "]
    return "".join(parts)


def escaped(key: str) -> str:
    """A key as a segment of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
