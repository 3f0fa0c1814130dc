"""Templates: `{{ path | filter | fallback }}` in the strings of params (sequence-format 7).

A string is compiled once into parts. If its first `{{` ends where the string ends, the result keeps
its JSON type; otherwise it is text. A result is never scanned again: what comes from data cannot
become a template. What is inside the braces is the business of `segments`. The easy mistake:
handing out a list or an object of the scope itself; whoever gets the result may change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from orch8_local.errors import TemplateError
from orch8_local.lang.jsontext import MAX_TEXT_BYTES, copied, is_too_long, text_of
from orch8_local.lang.problem import LangProblem
from orch8_local.lang.scope import Scope
from orch8_local.lang.segments import Expr, Path, Wrong, compiled_expression

Json = Any

_MARK = re.compile(r"""'[^']*'|"[^"]*"|['"]|\{\{|\}\}""")
"""What decides where an expression ends: quoted text, a quote without its partner, braces."""

_LONGEST_CACHED = 16_384
"""Characters; what is longer is compiled each time, so that the cache stays small."""


def resolve(value: Json, scope: Scope) -> Json:
    """A JSON value with every template in its strings resolved; keys are never templates.

    The result shares no list and no object with the value or the scope. Any depth.
    Raises TemplateError, with the place: unknown root or filter, a filter's own error, too large.
    """
    if isinstance(value, str):
        return _resolved_text(value, scope)
    if not isinstance(value, (dict, list)):
        return value
    result: Json = _shell(value)
    pending = [(value, result)]
    for source, target in pending:
        for key, item in source.items() if isinstance(source, dict) else enumerate(source):
            if isinstance(item, str):
                try:
                    target[key] = _resolved_text(item, scope) if "{{" in item else item
                except TemplateError as error:
                    raise _at_place(error, value, item) from error
            elif isinstance(item, (dict, list)):
                target[key] = _shell(item)
                pending.append((item, target[key]))
            else:
                target[key] = item
    return result


def has_template(value: Json) -> bool:
    """True if any string in the value holds a `{{`."""
    return any("{{" in text for text in _strings(value))


def check(text: str) -> list[LangProblem]:
    """Everything wrong with one string, in order; empty for text without templates."""
    if "{{" not in text:
        return []
    compiled = _compiled(text)
    hints = (problem for part in compiled.parts if isinstance(part, Expr) for problem in part.hints)
    return sorted([*compiled.problems, *hints], key=lambda problem: problem.column)


def references(value: Json) -> list[Path]:
    """Every path that the value's templates read, as its keys; `steps.a` is `("steps", "a")`."""
    return [
        path
        for text in _strings(value)
        if "{{" in text
        for part in _compiled(text).parts
        if isinstance(part, Expr)
        for path in part.paths
    ]


def _shell(value: Json) -> Json:
    return {} if isinstance(value, dict) else [None] * len(value)


def _strings(value: Json) -> Iterator[str]:
    """Every string in a value, level by level."""
    pending = [value]
    for item in pending:
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)


def _at_place(error: TemplateError, whole: Json, text: str) -> TemplateError:
    """The error with the place of its text, found only now: nobody pays for it where all is well."""
    pending = [(whole, "")]
    for item, place in pending:
        if item is text:
            return TemplateError(f"{place.lstrip('.')}: {error.message}", hint=error.hint, details={"path": place})
        if isinstance(item, dict):
            pending.extend((child, f"{place}.{key}") for key, child in item.items())
        elif isinstance(item, list):
            pending.extend((child, f"{place}[{index}]") for index, child in enumerate(item))
    return error


# --- one string -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Template:
    """parts: texts and expressions, in order; what does not parse is in the problems only."""

    parts: tuple[str | Expr, ...]
    problems: tuple[LangProblem, ...]

    def resolve(self, scope: Scope) -> Json:
        """The value of a lone expression, else text."""
        for problem in self.problems:
            if problem.code != "template_unclosed":  # kept as text: such a document may have been stored
                raise TemplateError(f"{problem.message} (column {problem.column})", hint=problem.suggestion)
        if len(self.parts) == 1 and isinstance(self.parts[0], Expr):
            return copied(self.parts[0].evaluate(scope))
        texts: list[str] = []
        length = 0
        for part in self.parts:
            texts.append(part if isinstance(part, str) else text_of(part.evaluate(scope)))
            length += len(texts[-1])
            if length > MAX_TEXT_BYTES:
                raise _too_long()
        whole = "".join(texts)
        if is_too_long(whole):
            raise _too_long()
        return whole


def _too_long() -> TemplateError:
    return TemplateError(f"the resolved text is longer than {MAX_TEXT_BYTES} bytes", hint="pass large values by a file")


def _resolved_text(text: str, scope: Scope) -> Json:
    return _compiled(text).resolve(scope) if "{{" in text else text


def _compiled(text: str) -> _Template:
    return _remembered(text) if len(text) <= _LONGEST_CACHED else _compile(text)


@lru_cache(maxsize=2048)
def _remembered(text: str) -> _Template:
    return _compile(text)


def _compile(text: str) -> _Template:
    parts: list[str | Expr] = []
    problems: list[LangProblem] = []
    at = 0
    while (begin := text.find("{{", at)) >= 0:
        end, obstacle = _end_of(text, begin + 2)
        if end is None:
            problems.append(_unclosed(begin, obstacle))
            break
        if begin > at:
            parts.append(text[at:begin])
        try:
            if obstacle is not None:
                message = "another '{{' begins before this one is closed"
                raise Wrong("template_nested", message, begin + 1, "write '}}' after the first expression")
            parts.append(compiled_expression(text[begin + 2 : end], begin + 3))
        except Wrong as wrong:
            problems.append(wrong.problem)
        at = end + 2
    if at < len(text):
        parts.append(text[at:])
    return _Template(tuple(parts), tuple(problems))


def _end_of(text: str, at: int) -> tuple[int | None, int | None]:
    """(where the `}}` of an expression begins, what lies before it that should not).

    The second is the place of a `{{` if there is an end, of an unpaired quote if there is none.
    """
    nested = None
    for mark in _MARK.finditer(text, at):
        if mark.group() == "}}":
            return mark.start(), nested
        if mark.group() == "{{":
            nested = mark.start() if nested is None else nested
        elif len(mark.group()) == 1:
            return None, mark.start()
    return None, None


def _unclosed(begin: int, quote: int | None) -> LangProblem:
    if quote is None:
        return LangProblem("template_unclosed", "this '{{' has no '}}'", begin + 1, "close it, or take it out")
    message = f"this '{{{{' has no end: the quote at column {quote + 1} is never closed"
    return LangProblem("template_unclosed", message, begin + 1, "close the quote, or take it out")
