"""Expressions from text to a tree of functions (sequence-format 8.1).

One parser for both ways of reading. It always goes on: what a lenient reading would make of the text
is the tree, what deviates from the grammar is in the list of problems. Chains (`a + b + c …`) are
loops, so only brackets and prefix operators nest, and those are counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orch8_local.lang import functions, operators
from orch8_local.lang.jsontext import number_from_text
from orch8_local.lang.path import CONTEXT_SECTIONS, MISSING, ROOTS, from_root, look_up
from orch8_local.lang.problem import LangProblem, nearest
from orch8_local.lang.scope import Scope

Json = Any
Code = Callable[[Scope], Json]

MAX_DEPTH = 64
BRACKET_COST = 7
"""Of the 64 that an expression may nest, a parenthesis, argument or list element costs this much."""

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>[0-9]+(?:\.[0-9]*)?)"
    r"|(?P<path>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<tail>\.[A-Za-z0-9_.]+)"
    r"|(?P<string>'[^']*'|\"[^\"]*\")"
    r"|(?P<open_string>['\"].*\Z)"
    r"|(?P<operator>\|\||&&|==|!=|>=|<=|[-+*/<>!?:(),\[\]])",
    re.ASCII | re.DOTALL,
)
_WORDS: Mapping[str, str] = {"and": "&&", "or": "||", "not": "!", "is": "=="}
_CONSTANTS: Mapping[str, Json] = {"true": True, "false": False, "null": None}
_STRANGE: Mapping[str, str] = {
    "=": "two '=' compare: a == b",
    "%": "there is no remainder; calculate it in a step",
    "&": "write &&",
    "|": "write ||",
    "{": "an expression stands without braces",
    "}": "an expression stands without braces",
}
_END = ("end", "", 0)
_UNKNOWN_PATH_LETTERS = "a name has only ASCII letters, digits and '_'; write outputs[\"…\"] for others"


@dataclass(slots=True)
class Parsed:
    """code: the lenient reading. problems: deviations from the grammar, in order. paths: what it reads."""

    code: Code
    problems: list[LangProblem] = field(default_factory=list)
    paths: list[tuple[str, ...]] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Parse an expression; never raises."""
    column = 1
    stripped = text.strip()
    if stripped.startswith("{{") and stripped.endswith("}}") and len(stripped) >= 4:
        column += text.index("{{") + 2
        text = text.strip()[2:-2]
    return _Parser(text, column).parse()


class _TooDeep(Exception):
    pass


class _Parser:
    def __init__(self, text: str, column: int) -> None:
        self._parsed = Parsed(lambda _scope: None)
        self._column = column
        self._tokens = self._tokenise(text)
        self._at = 0
        self._depth = BRACKET_COST

    def parse(self) -> Parsed:
        """The whole text."""
        parsed = self._parsed
        if self._kind == "end" and not parsed.problems:
            self._problem(
                "expression_empty", "the expression is empty", "write a condition, or leave the field out"
            )
        try:
            parsed.code = self._ternary()
        except _TooDeep:
            self._problem("expression_too_deep", "the expression is nested too deeply", "use fewer brackets")
            parsed.code = lambda _scope: None
        else:
            if self._kind != "end":
                self._left_over()
        parsed.problems.sort(key=lambda problem: problem.column)
        return parsed

    # --- tokens --------------------------------------------------------------------------------

    def _tokenise(self, text: str) -> list[tuple[str, str, int]]:
        tokens = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                self._unknown(text, at)
                break
            kind = str(found.lastgroup)
            if kind != "space":
                tokens.append((kind, found.group(), self._column + at))
            at = found.end()
        return tokens

    def _unknown(self, text: str, at: int) -> None:
        character = text[at]
        hint = _STRANGE.get(character)
        if hint is None and character.isalnum():
            hint = _UNKNOWN_PATH_LETTERS
        message = f"{character!r} cannot stand in an expression"
        self._parsed.problems.append(LangProblem("expression_character", message, self._column + at, hint))

    @property
    def _token(self) -> tuple[str, str, int]:
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return (_END[0], _END[1], self._column if not self._tokens else self._end_column())

    def _end_column(self) -> int:
        _, text, column = self._tokens[-1]
        return column + len(text)

    @property
    def _kind(self) -> str:
        return self._token[0]

    def _is(self, *operators_: str) -> bool:
        kind, text, _ = self._token
        return kind == "operator" and text in operators_

    def _take(self) -> tuple[str, str, int]:
        token = self._token
        self._at += 1
        return token

    def _expect(self, operator: str) -> None:
        if self._is(operator):
            self._at += 1
        else:
            self._problem("expression_unclosed", f"{operator!r} is missing here", f"add {operator!r}")

    def _problem(
        self, code: str, message: str, suggestion: str | None = None, column: int | None = None
    ) -> None:
        at = self._token[2] if column is None else column
        self._parsed.problems.append(LangProblem(code, message, at, suggestion))

    def _left_over(self) -> None:
        kind, text, _ = self._token
        hint = None
        if kind == "path" and text in _WORDS:
            hint = f"write {_WORDS[text]}"
        elif kind == "operator" and text in ("==", "!=", "<", "<=", ">", ">="):
            hint = "compare twice: a < b && b < c"
        elif kind == "operator" and text in ("?", ":"):
            hint = "put the inner one into parentheses"
        elif kind == "path" and text[:1] in "eE":
            hint = "write the number without an exponent"
        self._problem("expression_left_over", f"{text!r} does not belong here", hint)

    def _enter(self, cost: int) -> None:
        self._depth += cost
        if self._depth > MAX_DEPTH:
            raise _TooDeep

    # --- grammar -------------------------------------------------------------------------------

    def _ternary(self) -> Code:
        condition = self._either()
        if not self._is("?"):
            return condition
        self._take()
        yes = self._either()
        if not self._is(":"):
            self._problem("expression_ternary", "a '?' needs its ':'", "write a ? b : c")
            return lambda _scope: None
        self._take()
        no = self._either()
        return lambda scope: yes(scope) if operators.truthy(condition(scope)) else no(scope)

    def _either(self) -> Code:
        return self._chain(("||",), lambda: self._chain(("&&",), self._comparison))

    def _chain(self, names: tuple[str, ...], operand: Callable[[], Code]) -> Code:
        first = operand()
        rest: list[tuple[operators.Binary, Code]] = []
        while self._is(*names):
            operator = self._take()[1]
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
        left = self._sum()
        if self._kind == "path" and self._token[1] == "in":
            self._take()
            right = self._primary()
            return lambda scope: operators.is_in(left(scope), right(scope))
        if not self._is("==", "!=", ">", ">=", "<", "<="):
            return left
        compare = operators.BINARY[self._take()[1]]
        right = self._sum()
        return lambda scope: compare(left(scope), right(scope))

    def _sum(self) -> Code:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._unary))

    def _unary(self) -> Code:
        prefixes = []
        before = self._depth
        while self._is("!", "-"):
            self._enter(1)
            prefixes.append(self._take()[1])
        operand = self._primary()
        self._depth = before
        for prefix in reversed(prefixes):
            operand = _prefixed(prefix, operand)
        return operand

    def _primary(self) -> Code:
        kind, text, column = self._token
        if kind == "number":
            self._take()
            return self._number(text, column)
        if kind == "string":
            self._take()
            return _constant(text[1:-1])
        if kind == "open_string":
            self._take()
            self._problem("expression_unclosed", "this text has no closing quote", f"add {text[0]}", column)
            return _constant(text[1:])
        if kind == "path":
            return self._path_or_call()
        if self._is("("):
            return self._parenthesis()
        if self._is("["):
            self._take()
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
        kind, text, _ = self._token
        if self._parsed.problems and kind == "end":
            return
        what = f"a value is missing before {text!r}" if kind != "end" else "a value is missing at the end"
        self._problem("expression_operand", what, "complete the expression")

    def _parenthesis(self) -> Code:
        self._take()
        self._enter(BRACKET_COST)
        inner = self._ternary()
        self._depth -= BRACKET_COST
        self._expect(")")
        return inner

    def _list(self, closing: str) -> list[Code]:
        items: list[Code] = []
        while not self._is(closing):
            if self._kind == "end":
                break
            self._enter(BRACKET_COST)
            items.append(self._ternary())
            self._depth -= BRACKET_COST
            if not self._is(","):
                break
            self._take()
        self._expect(closing)
        return items

    def _path_or_call(self) -> Code:
        _, text, column = self._take()
        if self._is("("):
            self._take()
            self._parsed.calls.append((text, column))
            arguments = self._list(")")
            function = functions.FUNCTIONS.get(text)
            if function is None:
                return _constant(None)
            return lambda scope: function(scope, *(argument(scope) for argument in arguments))
        if text in _CONSTANTS:
            return _constant(_CONSTANTS[text])
        keys = self._brackets(text.split("."))
        self._parsed.paths.append(keys)
        return _path(keys)

    def _brackets(self, keys: list[str]) -> tuple[str, ...]:
        """`outputs["step-2"].ok`: a local addition for keys that a path cannot spell."""
        is_after_bracket = False
        while self._is("[") or (is_after_bracket and self._kind == "tail"):
            kind, text, _ = self._take()
            if kind == "tail":
                keys.extend(text[1:].split("."))
                continue
            is_after_bracket = True
            kind, text, column = self._token
            if kind == "string":
                self._take()
                keys.append(text[1:-1])
            else:
                hint = f"write .{text}" if kind == "number" else "write a key in quotes"
                self._problem(
                    "expression_subscript", "only a key in quotes may stand in brackets", hint, column
                )
                self._at += kind != "end" and not self._is("]")
            self._expect("]")
        return tuple(keys)


def _constant(value: Json) -> Code:
    return lambda _scope: value


def _prefixed(prefix: str, operand: Code) -> Code:
    if prefix == "!":
        return lambda scope: not operators.truthy(operand(scope))
    return lambda scope: operators.negated(operand(scope))


def _path(keys: tuple[str, ...]) -> Code:
    root = keys[0]
    if root == "context":
        if len(keys) == 1 or keys[1] not in CONTEXT_SECTIONS:
            return _constant(None)
        return lambda scope: _value(from_root(scope, keys))
    if root == "state":
        return lambda scope: _value(
            look_up(scope.data, keys) if _has_key(scope.data, "state") else from_root(scope, keys)
        )
    if root in ROOTS:
        return lambda scope: _value(from_root(scope, keys))
    return lambda scope: _value(look_up(scope.data, keys))


def _has_key(value: Json, key: str) -> bool:
    return isinstance(value, Mapping) and key in value


def _value(found: Json) -> Json:
    return None if found is MISSING else found


def suggestion_for_call(name: str) -> str:
    """What was probably meant by an unknown function."""
    near = nearest(name, functions.FUNCTIONS)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(functions.FUNCTIONS))}"
