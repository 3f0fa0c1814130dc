"""Templates: `{{ path | filter | fallback }}` in the strings of params (sequence-format 7).

A string is compiled once into parts. If its first `{{` ends where the string ends, the result keeps
its JSON type; otherwise it is text. A result is never scanned again: what comes from data cannot
become a template. The easy mistake: looking for `}}` or `|` without respecting quotes and
parentheses; both may hold either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from orch8_local.errors import TemplateError
from orch8_local.lang import filters
from orch8_local.lang.jsontext import compact_json, text_of
from orch8_local.lang.path import CONTEXT_SECTIONS, MISSING, ROOTS, from_root
from orch8_local.lang.problem import LangProblem, is_slip, nearest
from orch8_local.lang.scope import Scope

Json = Any
Path = tuple[str, ...]

MAX_TEXT_BYTES = 4_194_304
"""The largest text that a filter or an inserted value may make (7.4)."""

_FUNCTIONS = ("json", "len")
_OPERATORS = (" + ", " - ", " * ", " / ", " == ", " != ", " > ", " < ", " && ")


def resolve(value: Json, scope: Scope) -> Json:
    """A JSON value with every template in its strings resolved; keys are never templates.

    Raises TemplateError: unknown root or filter, a filter's own error, a result that is too large.
    """
    if isinstance(value, str):
        return _compiled(value).resolve(scope) if "{{" in value else value
    if isinstance(value, dict):
        return {key: resolve(item, scope) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, scope) for item in value]
    return value


def has_template(value: Json) -> bool:
    """True if any string in the value holds a `{{`."""
    return any("{{" in text for text in _strings(value))


def check(text: str) -> list[LangProblem]:
    """Everything wrong with one string; empty for text without templates."""
    if "{{" not in text:
        return []
    template, problems = _parse(text)
    return [
        *problems,
        *(problem for part in template.parts if isinstance(part, _Expr) for problem in part.hints),
    ]


def references(value: Json) -> list[Path]:
    """Every path that the value's templates read, as its keys; `steps.a` is `("steps", "a")`."""
    return [
        path
        for text in _strings(value)
        if "{{" in text
        for part in _parse(text)[0].parts
        if isinstance(part, _Expr)
        for path in part.paths
    ]


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


# --- compiled -------------------------------------------------------------------------------------

Source = Callable[[Scope], Json]
Step = Callable[[Json, Scope], Json]


@dataclass(frozen=True, slots=True)
class _Expr:
    """One `{{ … }}`. sources are tried in order until one is not null; then the steps are applied."""

    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    paths: tuple[Path, ...]
    hints: tuple[LangProblem, ...]

    def evaluate(self, scope: Scope) -> Json:
        """The value, MISSING as null."""
        value = None
        for source in self.sources:
            value = source(scope)
            if value is not None and value is not MISSING:
                break
        value = None if value is MISSING else value
        for step in self.steps:
            value = step(value, scope)
            if isinstance(value, str) and len(value) > MAX_TEXT_BYTES:
                raise TemplateError(f"a filter made a text of more than {MAX_TEXT_BYTES} characters")
        return value


@dataclass(frozen=True, slots=True)
class _Template:
    parts: tuple[str | _Expr, ...]

    def resolve(self, scope: Scope) -> Json:
        """The value of a lone expression, else text."""
        if len(self.parts) == 1 and isinstance(self.parts[0], _Expr):
            return self.parts[0].evaluate(scope)
        texts = [part if isinstance(part, str) else text_of(part.evaluate(scope)) for part in self.parts]
        if sum(map(len, texts)) > MAX_TEXT_BYTES:
            raise TemplateError(f"the resolved text is longer than {MAX_TEXT_BYTES} characters")
        return "".join(texts)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> _Template:
    template, problems = _parse(text)
    error = next((p for p in problems if not p.is_warning and p.code != "template_unclosed"), None)
    if error is not None:
        raise TemplateError(f"{error.message} (column {error.column})", hint=error.suggestion)
    return template


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[_Template, tuple[LangProblem, ...]]:
    """The parts of a text and the errors in it; what does not parse is left out of the parts."""
    parts: list[str | _Expr] = []
    problems: list[LangProblem] = []
    at = 0
    while (begin := text.find("{{", at)) >= 0:
        end = _end_of(text, begin + 2)
        if end is None:
            problems.append(
                LangProblem(
                    "template_unclosed", "this '{{' has no '}}'", begin + 1, "close it, or take it out"
                )
            )
            break
        if begin > at:
            parts.append(text[at:begin])
        try:
            parts.append(_expression(text[begin + 2 : end], begin + 3))
        except _Wrong as wrong:
            problems.append(wrong.problem)
        at = end + 2
    if at < len(text):
        parts.append(text[at:])
    return _Template(tuple(parts)), tuple(problems)


def _end_of(text: str, at: int) -> int | None:
    """Where the `}}` of an expression begins, outside quotes."""
    quote = ""
    for index in range(at, len(text) - 1):
        character = text[index]
        if quote:
            if character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "}" and text[index + 1] == "}":
            return index
    return None


class _Wrong(Exception):
    """An expression that cannot be meant."""

    def __init__(self, code: str, message: str, column: int, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.problem = LangProblem(code, message, column, suggestion)


def _segments(text: str, column: int) -> list[tuple[str, int]]:
    """(segment without outer space, its column), split at every `|` outside quotes and parentheses."""
    cuts: list[int] = [-1]
    quote, depth = "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth = max(depth + (1 if character == "(" else -1), 0)
        elif character == "|" and not depth:
            cuts.append(index)
    found = []
    for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        raw = text[begin + 1 : end]
        found.append((raw.strip(), column + begin + 1 + len(raw) - len(raw.lstrip())))
    return found


def _expression(text: str, column: int) -> _Expr:
    """Compile one expression (7.4). `column` is that of its first character."""
    segments = _segments(text, column)
    first, first_column = segments[0]
    if not first:
        raise _Wrong(
            "template_empty", "nothing stands between '{{' and '}}'", column, "write a path: {{ data.x }}"
        )
    paths: list[Path] = []
    hints: list[LangProblem] = []
    sources: list[Source] = [_source(first, first_column, paths, hints)]
    steps: list[Step] = []
    is_literal = False
    for segment, at in segments[1:]:
        filter_step = _filter(segment, at, paths, hints)
        if filter_step is not None:
            steps.append(filter_step)
        elif steps or is_literal:
            raise _misplaced(segment, at, after_filter=bool(steps))
        elif _is_path(segment):
            sources.append(_source(segment, at, paths, hints))
        else:
            value = _fallback(segment, at)
            sources.append(_constant(value))
            is_literal = True
    return _Expr(tuple(sources), tuple(steps), tuple(paths), tuple(hints))


def _constant(value: Json) -> Source:
    return lambda _scope: value


def _misplaced(segment: str, at: int, *, after_filter: bool) -> _Wrong:
    near = nearest(segment.partition("(")[0], filters.NAMES)
    if not segment:
        return _Wrong("template_empty", "nothing stands between two '|'", at, "take one '|' out")
    where = "after a filter" if after_filter else "after a fallback that always has a value"
    hint = f"did you mean {near!r}?" if near else "a fallback comes directly after the path it stands in for"
    return _Wrong("template_filter", f"{segment!r} {where} is no filter", at, hint)


def _fallback(segment: str, at: int) -> Json:
    """A literal in the place of a value that is missing."""
    if not segment:
        raise _Wrong(
            "template_empty", "nothing stands between two '|'", at, "one '|' is enough; '' is the empty text"
        )
    if not filters.is_quoted(segment):
        word = segment.partition("(")[0].strip()
        slip = next((name for name in filters.NAMES if is_slip(word, name)), None)
        if slip is not None or word in filters.NAMES or segment.endswith(")"):
            hint = (
                f"did you mean {slip!r}?" if slip else f"known are {', '.join(filters.NAMES)}; quote a text"
            )
            raise _Wrong("template_filter", f"there is no filter {segment!r}", at, hint)
    return filters.literal(segment)


def _is_path(segment: str) -> bool:
    if filters.is_quoted(segment):
        return False
    head = segment.partition("(")[0]
    return segment.partition(".")[0] in (*ROOTS, "context") or (head in _FUNCTIONS and segment.endswith(")"))


def _source(segment: str, at: int, paths: list[Path], hints: list[LangProblem]) -> Source:
    head, bracket, rest = segment.partition("(")
    if bracket:
        inner = rest.rpartition(")")[0]
        if head not in _FUNCTIONS:
            near = nearest(head, _FUNCTIONS)
            hint = (
                f"did you mean {near!r}?"
                if near
                else "known are json(path) and len(path); filters come after a '|'"
            )
            raise _Wrong("template_function", f"there is no function {head!r}", at, hint)
        keys = _path(inner, at + len(head) + 1, hints)
        paths.append(keys)
        call = _json_of if head == "json" else _length_of
        return lambda scope: call(from_root(scope, keys))
    keys = _path(segment, at, hints)
    paths.append(keys)
    return lambda scope: from_root(scope, keys)


def _path(text: str, at: int, hints: list[LangProblem]) -> Path:
    keys = tuple(text.split("."))
    if keys[0] == "context":
        if len(keys) == 1 or keys[1] not in CONTEXT_SECTIONS:
            raise _Wrong(
                "template_root", f"{text!r}: context has only data and config", at, "write data.… or config.…"
            )
    elif keys[0] not in ROOTS:
        raise _unknown_root(text, keys[0], at)
    if any(operator in text for operator in _OPERATORS):
        message = f"{text!r} reads a key with spaces in it: a template does not calculate"
        hints.append(
            LangProblem(
                "template_operator", message, at, "calculate in a transform or a `when`", is_warning=True
            )
        )
    return keys


def _unknown_root(text: str, root: str, at: int) -> _Wrong:
    if filters.is_quoted(text):
        return _Wrong("template_root", "a text cannot come first", at, "write it without the braces")
    near = nearest(root, (*ROOTS, "context"))
    hint = f"did you mean {near!r}?" if near else f"data of the run is data.{text}"
    return _Wrong("template_root", f"{root!r} is no root of a path", at, hint)


def _json_of(value: Json) -> str:
    text = compact_json(None if value is MISSING else value)
    if len(text) > MAX_TEXT_BYTES:
        raise TemplateError(f"json() made a text of more than {MAX_TEXT_BYTES} characters")
    return text


def _length_of(value: Json) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return len(value) if isinstance(value, (list, Mapping)) else 0


def _filter(segment: str, at: int, paths: list[Path], hints: list[LangProblem]) -> Step | None:
    """The step of a filter segment, or None if it is none."""
    if segment in filters.BARE:
        apply = filters.bare(segment)
        return lambda value, _scope: apply(value)
    name, bracket, rest = segment.partition("(")
    if not bracket or name not in filters.WITH_ARGUMENTS:
        return None
    argument, closing, after = rest.rpartition(")")
    if not closing or after.strip():
        raise _Wrong("template_filter", f"{name}( has no ')' at its end", at, f"write {name}(…)")
    if name == "replace":
        return _replace(argument, at, paths, hints)
    if name == "default" and _is_path(argument.strip()):
        message = f"default({argument}) gives that text; it does not read the path"
        hints.append(
            LangProblem("template_default", message, at, f"write | {argument.strip()}", is_warning=True)
        )
    try:
        step = filters.with_argument(name, argument)
    except TemplateError as error:
        raise _Wrong("template_filter", error.message, at, error.hint) from None
    return lambda value, _scope: step(value)


def _replace(argument: str, at: int, paths: list[Path], hints: list[LangProblem]) -> Step:
    parts = _split_arguments(argument)
    if len(parts) < 2:
        raise _Wrong("template_filter", "replace() needs two arguments", at, "write replace('old', 'new')")
    old, new = filters.unquoted(parts[0]), parts[1]
    if not old:
        raise _Wrong("template_filter", "replace() cannot replace the empty text", at)
    if not _is_path(new):
        fixed = filters.unquoted(new)
        return lambda value, _scope: filters.replace(value, old, fixed)
    keys = _path(new, at, hints)
    paths.append(keys)

    def step(value: Json, scope: Scope) -> str:
        found = from_root(scope, keys)
        return filters.replace(value, old, "" if found is MISSING else text_of(found))

    return step


def _split_arguments(text: str) -> Sequence[str]:
    """The two arguments, separated by the first comma outside quotes."""
    quote = ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == ",":
            return text[:index].strip(), text[index + 1 :].strip()
    return (text.strip(),)
