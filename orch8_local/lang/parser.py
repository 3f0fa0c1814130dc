"""Expressions from tokens to a tree of functions (sequence-format 8.1).

One parser for both ways of reading. It always goes on: what a lenient reading would make of the text
is the tree, what deviates from the grammar is in the list of problems. Chains (`a + b + c …`) are
loops, so only brackets and prefix operators nest, and those are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orch8_local.lang import doubts, functions, operators
from orch8_local.lang.jsontext import number_from_text
from orch8_local.lang.lexer import Cursor
from orch8_local.lang.path import reader
from orch8_local.lang.problem import LangProblem, shown
from orch8_local.lang.scope import Scope

Json = Any
Code = Callable[[Scope], Json]

MAX_DEPTH = 64
BRACKET_COST = 7
"""Of the 64 that an expression may nest, a parenthesis, argument or list element costs this much."""

_CONSTANTS: Mapping[str, Json] = {"true": True, "false": False, "null": None}
_COMPARISONS = ("==", "!=", ">", ">=", "<", "<=")


@dataclass(slots=True)
class Parsed:
    """code: the lenient reading. problems: deviations from the grammar, in order. paths: what it reads.

    calls: name and column of each function. hints: what is right, and hardly meant.
    """

    code: Code
    problems: list[LangProblem] = field(default_factory=list)
    paths: list[tuple[str, ...]] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)
    hints: list[LangProblem] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Parse an expression; never raises."""
    column = 1
    stripped = text.strip()
    if stripped.startswith("{{") and stripped.endswith("}}") and len(stripped) >= 4:
        column += text.index("{{") + 2
        text = stripped[2:-2]
    return _Parser(text, column).parse()


class _TooDeep(Exception):
    pass


class _Parser(Cursor):
    def __init__(self, text: str, column: int) -> None:
        super().__init__(text, column)
        self._parsed = Parsed(_constant(None))
        if self.stranger is not None:
            self._parsed.problems.append(self.stranger)
        self._depth = BRACKET_COST
        self._hyphen: LangProblem | None = None

    def parse(self) -> Parsed:
        """The whole text."""
        parsed = self._parsed
        if self.token.kind == "end" and not parsed.problems:
            self._problem("expression_empty", "the expression is empty", "write a condition, or leave the field out")
        try:
            parsed.code = self._ternary()
        except _TooDeep:
            self._problem("expression_too_deep", "the expression is nested too deeply", "use fewer brackets")
            parsed.code = _constant(None)
        else:
            is_told = any(problem.code == "expression_operand" for problem in parsed.problems)
            if self.token.kind != "end" and not is_told:
                self._left_over()
        parsed.problems.sort(key=lambda problem: problem.column)
        return parsed

    # --- problems ------------------------------------------------------------------------------

    def _expect(self, operator: str) -> None:
        if self.is_operator(operator):
            self.take()
        else:
            self._problem("expression_unclosed", f"{operator!r} is missing here", f"add {operator!r}")

    def _problem(self, code: str, message: str, suggestion: str | None = None, column: int | None = None) -> None:
        at = self.token.column if column is None else column
        self._parsed.problems.append(LangProblem(code, message, at, suggestion))

    def _left_over(self) -> None:
        hint = doubts.about_left_over(self.before, self.token, self._hyphen)
        self._problem("expression_left_over", f"{shown(self.token.text)} does not belong here", hint)

    def _enter(self, cost: int) -> None:
        self._depth += cost
        if self._depth > MAX_DEPTH:
            raise _TooDeep

    # --- grammar -------------------------------------------------------------------------------

    def _ternary(self) -> Code:
        condition = self._either()
        if not self.is_operator("?"):
            return condition
        self.take()
        yes = self._either()
        if not self.is_operator(":"):
            self._problem("expression_ternary", "a '?' needs its ':'", "write a ? b : c")
            return _constant(None)
        self.take()
        no = self._either()
        return lambda scope: yes(scope) if operators.truthy(condition(scope)) else no(scope)

    def _either(self) -> Code:
        return self._chain(("||",), lambda: self._chain(("&&",), self._comparison))

    def _chain(self, names: tuple[str, ...], operand: Callable[[], Code]) -> Code:
        first = operand()
        rest: list[tuple[operators.Binary, Code]] = []
        while self.is_operator(*names):
            operator = self.take().text
            rest.append((operators.BINARY[operator], operand()))
        if not rest:
            return first

        def run(scope: Scope) -> Json:
            value = first(scope)
            for apply, right in rest:
                value = apply(value, right(scope))
            return value

        return run

    def _comparison(self) -> Code:
        start = self.token
        left = self._sum()
        if self.token.kind == "path" and self.token.text == "in":
            self._parsed.hints.extend(doubts.about_not_in(start))
            self.take()
            right = self._primary()
            return lambda scope: operators.is_in(left(scope), right(scope))
        if not self.is_operator(*_COMPARISONS):
            return left
        compare = operators.BINARY[self.take().text]
        right = self._sum()
        return lambda scope: compare(left(scope), right(scope))

    def _sum(self) -> Code:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._unary))

    def _unary(self) -> Code:
        prefixes = []
        before = self._depth
        while self.is_operator("!", "-"):
            self._enter(1)
            prefixes.append(self.take().text)
        operand = self._primary()
        self._depth = before
        for prefix in reversed(prefixes):
            operand = _prefixed(prefix, operand)
        return operand

    def _primary(self) -> Code:
        kind, text, column = self.token
        if kind == "number":
            self.take()
            return self._number(text, column)
        if kind == "string":
            self.take()
            return _constant(text[1:-1])
        if kind == "open_string":
            self.take()
            self._problem("expression_unclosed", "this text has no closing quote", f"add {text[0]}", column)
            return _constant(text[1:])
        if kind == "path":
            return self._path_or_call()
        if self.is_operator("("):
            return self._parenthesis()
        if self.is_operator("["):
            self.take()
            items = self._list("]")
            return lambda scope: [item(scope) for item in items]
        self._missing_operand()
        return _constant(None)

    def _number(self, text: str, column: int) -> Code:
        number = number_from_text(text)
        assert number is not None, "the tokens know what a number is"
        if isinstance(number, int) or math.isfinite(number):
            return _constant(number)
        self._problem("expression_number", "this number is too large", "at most 1.8e308", column)
        return _constant(None)

    def _missing_operand(self) -> None:
        kind, text, _ = self.token
        if self._parsed.problems and kind == "end":
            return
        what = f"a value is missing before {shown(text)}" if kind != "end" else "a value is missing at the end"
        self._problem("expression_operand", what, "complete the expression")
        if self.is_operator(*operators.BINARY, "?"):
            self.take()  # leniently it stands for null itself: `== null` is not true

    def _parenthesis(self) -> Code:
        self.take()
        self._enter(BRACKET_COST)
        inner = self._ternary()
        self._depth -= BRACKET_COST
        self._expect(")")
        return inner

    def _list(self, closing: str) -> list[Code]:
        items: list[Code] = []
        while not self.is_operator(closing) and self.token.kind != "end":
            self._enter(BRACKET_COST)
            items.append(self._ternary())
            self._depth -= BRACKET_COST
            if not self.is_operator(","):
                break
            self.take()
        self._expect(closing)
        return items

    def _path_or_call(self) -> Code:
        token = self.take()
        text = token.text
        if self.is_operator("("):
            self.take()
            self._parsed.calls.append((text, token.column))
            arguments = self._list(")")
            function = functions.FUNCTIONS.get(text)
            if function is None:
                return _constant(None)
            return lambda scope: function(scope, *(argument(scope) for argument in arguments))
        if text in _CONSTANTS:
            return _constant(_CONSTANTS[text])
        keys = self._brackets(text.split("."))
        self._parsed.paths.append(keys)
        self._parsed.hints.extend(doubts.about_path(keys, token.column))
        for hyphen in doubts.about_hyphen(keys, token, self.token, self.following):
            self._hyphen = hyphen
            self._parsed.hints.append(hyphen)
        return reader(keys)

    def _brackets(self, keys: list[str]) -> tuple[str, ...]:
        """`outputs["step-2"].ok`: a local addition for keys that a path cannot spell."""
        is_after_bracket = False
        while self.is_operator("[") or (is_after_bracket and self.token.kind == "tail"):
            token = self.take()
            if token.kind == "tail":
                keys.extend(token.text[1:].split("."))
                continue
            is_after_bracket = True
            kind, text, column = self.token
            if kind == "string":
                self.take()
                keys.append(text[1:-1])
            else:
                hint = f"write .{text}" if kind == "number" else "write a key in quotes"
                message = "only a key in quotes may stand in brackets"
                self._problem("expression_subscript", message, hint, column)
                if not self.is_operator("]"):
                    self.take()
            self._expect("]")
        return tuple(keys)


def _constant(value: Json) -> Code:
    return lambda _scope: value


def _prefixed(prefix: str, operand: Code) -> Code:
    if prefix == "!":
        return lambda scope: not operators.truthy(operand(scope))
    return lambda scope: operators.negated(operand(scope))
