"""What stands between `{{` and `}}`: segments with `|` between them (sequence-format 7.2, 7.4).

Every mistake that can be found without data is found here, once, with its column and a way out. The
easy mistake: looking for `|` without respecting quotes and parentheses; both may hold it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orch8_local.errors import TemplateError
from orch8_local.lang import filters
from orch8_local.lang.jsontext import WHITE_SPACE, byte_length, compact_json, text_of
from orch8_local.lang.path import CONTEXT_SECTIONS, MISSING, ROOTS, from_root
from orch8_local.lang.problem import LangProblem, nearest, shown, slip_of
from orch8_local.lang.scope import Scope

Json = Any
Path = tuple[str, ...]
Source = Callable[[Scope], Json]
Step = Callable[[Json, Scope], Json]

_ROOTS = (*ROOTS, "context")
_FUNCTIONS = ("json", "len")
_CUT = re.compile(r"""'[^']*'|"[^"]*"|[()|,]""")
_CALCULATION = re.compile(r" (?:[-+*/%?]|and|or|if|in) |==|!=|[<>]|&&")
_SUBSCRIPT = re.compile(r"""\[\s*(?:'([^'\]]*)'|"([^"\]]*)"|([^'"\]]*))\s*\]""")


@dataclass(frozen=True, slots=True)
class Expr:
    """One `{{ … }}`. sources are tried in order until one is not null; then the steps are applied.

    paths: what it reads, wherever it stands. hints: warnings.
    """

    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    paths: tuple[Path, ...]
    hints: tuple[LangProblem, ...]

    def evaluate(self, scope: Scope) -> Json:
        """The value; what is missing is null. Raises TemplateError for a filter's own error."""
        value = None
        for source in self.sources:
            value = source(scope)
            if value is not None and value is not MISSING:
                break
        value = None if value is MISSING else value
        for step in self.steps:
            value = step(value, scope)
        return value


class Wrong(Exception):
    """An expression that cannot be meant."""

    def __init__(self, code: str, message: str, column: int, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.problem = LangProblem(code, message, column, suggestion)


@dataclass(slots=True)
class _Seen:
    paths: list[Path] = field(default_factory=list)
    hints: list[LangProblem] = field(default_factory=list)

    def doubt(self, code: str, message: str, column: int, suggestion: str) -> None:
        self.hints.append(LangProblem(code, message, column, suggestion, is_warning=True))


def compiled_expression(text: str, column: int) -> Expr:
    """Compile one expression (7.4). column: that of its first character. Raises Wrong."""
    (first, first_column), *others = _segments(text, column)
    if not first:
        raise Wrong("template_empty", "nothing stands between '{{' and '}}'", column, "write a path: {{ data.x }}")
    seen = _Seen()
    sources: list[Source] = [_source(first, first_column, seen)]
    steps: list[Step] = []
    is_literal = False
    for segment, at in others:
        step = _filter(segment, at, seen)
        if step is not None:
            steps.append(step)
        elif steps or is_literal:
            raise _misplaced(segment, at, after_filter=bool(steps))
        elif _is_path(segment):
            sources.append(_source(segment, at, seen))
        else:
            sources.append(_constant(_fallback(segment, at, seen)))
            is_literal = True
    return Expr(tuple(sources), tuple(steps), tuple(seen.paths), tuple(seen.hints))


def _segments(text: str, column: int) -> list[tuple[str, int]]:
    """(segment without outer space, its column), split at every `|` outside quotes and parentheses."""
    cuts: list[int] = [-1]
    depth = 0
    for mark in _CUT.finditer(text):
        if mark.group() == "(":
            depth += 1
        elif mark.group() == ")":
            depth = max(depth - 1, 0)
        elif mark.group() == "|" and not depth:
            cuts.append(mark.start())
    found = []
    for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        raw = text[begin + 1 : end]
        found.append((_stripped(raw), column + begin + 1 + len(raw) - len(raw.lstrip(WHITE_SPACE))))
    return found


def _stripped(text: str) -> str:
    return text.strip(WHITE_SPACE)


def _constant(value: Json) -> Source:
    return lambda _scope: value


# --- fallbacks ------------------------------------------------------------------------------------


def _misplaced(segment: str, at: int, *, after_filter: bool) -> Wrong:
    if not segment:
        return Wrong("template_empty", "nothing stands between two '|'", at, "take one '|' out")
    near = nearest(_stripped(segment.partition("(")[0]), filters.NAMES)
    where = "after a filter" if after_filter else "after a fallback that always has a value"
    hint = f"did you mean {near!r}?" if near else "a fallback comes directly after the path it stands in for"
    return Wrong("template_filter", f"{shown(segment)} {where} is no filter", at, hint)


def _fallback(segment: str, at: int, seen: _Seen) -> Json:
    """A literal in the place of a value that is missing."""
    if not segment:
        hint = "one '|' is enough; '' is the empty text"
        raise Wrong("template_empty", "nothing stands between two '|'", at, hint)
    if segment[0] not in "'\"":
        _not_meant_as_text(segment, at)
    return _literal(segment, at, seen)


def _not_meant_as_text(segment: str, at: int) -> None:
    """Refuse a bare fallback that looks like a filter or a path with a slip in it."""
    word = _stripped(segment.partition("(")[0])
    slip = slip_of(word, filters.NAMES)
    if slip is not None or word in filters.NAMES or segment.endswith(")"):
        usage = filters.USAGE.get(slip or word)
        hint = f"write {usage}" if word in filters.NAMES else f"did you mean {slip!r}?" if slip else _known_filters()
        raise Wrong("template_filter", f"there is no filter {shown(segment)}", at, hint)
    root, dot, rest = segment.partition(".")
    slip = slip_of(root, _ROOTS)
    if dot and slip is not None and not any(space in segment for space in WHITE_SPACE):
        hint = f"did you mean {slip}.{rest}? a text that looks like a path needs quotes"
        raise Wrong("template_root", f"{shown(segment)} is no path: {root!r} is no root", at, hint)


def _known_filters() -> str:
    return f"known are {', '.join(filters.NAMES)}; a text needs quotes"


def _literal(text: str, at: int, seen: _Seen) -> Json:
    """A literal as a fallback or in default(), with a doubt about a number that was a text."""
    try:
        value = filters.literal(text)
    except TemplateError as error:
        raise Wrong("template_quote", error.message, at, error.hint) from None
    is_kept = isinstance(value, str) or text_of(value) == text
    if not is_kept:
        seen.doubt("template_number", f"{shown(text)} becomes {text_of(value)}", at, "a text needs quotes")
    return value


# --- paths and functions --------------------------------------------------------------------------


def _is_path(segment: str) -> bool:
    head, bracket, _ = segment.partition("(")
    return segment.partition(".")[0] in _ROOTS or (head in _FUNCTIONS and bool(bracket))


def _source(segment: str, at: int, seen: _Seen) -> Source:
    head, bracket, rest = segment.partition("(")
    if not bracket or segment[0] in "'\"":
        keys = _path(segment, at, seen)
        return lambda scope: from_root(scope, keys)
    if head not in _FUNCTIONS:
        near = nearest(head, _FUNCTIONS)
        hint = f"did you mean {near!r}?" if near else "known are json(path) and len(path); filters come after a '|'"
        raise Wrong("template_function", f"there is no function {shown(head)}", at, hint)
    inner, closing, after = rest.rpartition(")")
    if not closing or after:
        what = f"{shown(after)} cannot follow {head}(…)" if closing else f"{head}( has no ')' at its end"
        raise Wrong("template_function", what, at, f"write {head}(path), then perhaps '|' and a filter")
    keys = _path(inner, at + len(head) + 1, seen)
    call = _json_of if head == "json" else _length_of
    return lambda scope: call(from_root(scope, keys))


def _path(text: str, at: int, seen: _Seen) -> Path:
    keys = tuple(text.split("."))
    if keys[0] == "context":
        if len(keys) == 1 or keys[1] not in CONTEXT_SECTIONS:
            message = f"{shown(text)}: context has only data and config"
            raise Wrong("template_root", message, at, "write data.… or config.…")
    elif keys[0] not in ROOTS:
        raise _unknown_root(text, keys[0], at)
    dotted = _SUBSCRIPT.sub(_dotted, text)
    if dotted != text:
        seen.doubt("template_path", f"{shown(text)} is one key: a path has no brackets", at, f"write {dotted}")
    elif _CALCULATION.search(text):
        message = f"{shown(text)} reads one long key: a template does not calculate"
        seen.doubt("template_operator", message, at, "calculate in a transform or a `when`")
    elif "" in keys:
        seen.doubt("template_path", f"{shown(text)} reads an empty key", at, "take the extra '.' out")
    seen.paths.append(keys)
    return keys


def _unknown_root(text: str, root: str, at: int) -> Wrong:
    if text[:1] in ("'", '"'):
        return Wrong("template_root", "a text cannot come first", at, "write it without the braces")
    if root == "secrets":
        return Wrong("template_root", "secrets are not built yet in this version", at)
    dotted = _SUBSCRIPT.sub(_dotted, text)
    near = nearest(_stripped(root), _ROOTS)
    if dotted != text and dotted.partition(".")[0] in _ROOTS:
        hint = f"a path has no brackets: write {dotted}"
    elif near == _stripped(root):
        hint = "take the space out"
    else:
        hint = f"did you mean {near!r}?" if near else f"data of the run is data.{text[:60]}"
    return Wrong("template_root", f"{shown(root)} is no root of a path", at, hint)


def _dotted(subscript: re.Match[str]) -> str:
    return "." + next(key for key in subscript.groups() if key is not None)


def _json_of(value: Json) -> str:
    return filters.bounded("json", compact_json(None if value is MISSING else value))


def _length_of(value: Json) -> int:
    if isinstance(value, str):
        return byte_length(value)
    return len(value) if isinstance(value, (list, Mapping)) else 0


# --- filters --------------------------------------------------------------------------------------


def _filter(segment: str, at: int, seen: _Seen) -> Step | None:
    """The step of a filter segment, or None if it is none."""
    if segment in filters.BARE:
        return _without_scope(filters.BARE[segment])
    name, bracket, rest = segment.partition("(")
    if not bracket or name not in filters.NAMES or name in filters.BARE:
        return None
    argument, closing, after = rest.rpartition(")")
    if not closing or after:
        raise Wrong("template_filter", f"{name}( has no ')' at its end", at, f"write {filters.USAGE[name]}")
    argument = _stripped(argument)
    column = at + len(name) + 1
    if name == "default":
        return _default(argument, column, seen)
    try:
        if name == "replace":
            return _replace(argument, column, seen)
        return _without_scope(filters.MADE_BY_ARGUMENT[name](argument))
    except TemplateError as error:
        raise Wrong("template_filter", error.message, at, error.hint) from None


def _without_scope(apply: filters.Filter) -> Step:
    return lambda value, _scope: apply(value)


def _default(argument: str, column: int, seen: _Seen) -> Step:
    if _is_path(argument):
        message = f"default({argument}) gives that text; it does not read the path"
        seen.doubt("template_default", message, column, f"write | {argument}")
    return _without_scope(filters.default(_literal(argument, column, seen) if argument else ""))


def _replace(argument: str, column: int, seen: _Seen) -> Step:
    comma = next((mark.start() for mark in _CUT.finditer(argument) if mark.group() == ","), None)
    if comma is None:
        raise TemplateError("replace() needs two arguments", hint=f"write {filters.USAGE['replace']}")
    old, new = filters.unquoted(_stripped(argument[:comma])), _stripped(argument[comma + 1 :])
    if not old:
        raise TemplateError("replace() cannot replace the empty text")
    if not _is_path(new):
        fixed = filters.unquoted(new)
        return lambda value, _scope: filters.replaced(value, old, fixed)
    source = _source(new, column + comma + 1, seen)

    def step(value: Json, scope: Scope) -> str:
        found = source(scope)
        return filters.replaced(value, old, "" if found is MISSING else text_of(found))

    return step
