"""Expressions from text to tokens (sequence-format 8.1).

Every alternative of the pattern ends at its first possible end or runs to the end of the text, so a
text of any length is read in one pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from orch8_local.lang.jsontext import WHITE_SPACE
from orch8_local.lang.problem import LangProblem


class Token(NamedTuple):
    """kind: number, path, tail (`.key` behind a bracket), string, open_string, operator or end.

    column: 1-based, of its first character in the text that was checked.
    """

    kind: str
    text: str
    column: int

    @property
    def end_column(self) -> int:
        """The column behind it."""
        return self.column + len(self.text)


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
_STRANGE: Mapping[str, str] = {
    "=": "two '=' compare: a == b",
    "%": "there is no remainder; calculate it in a step",
    "&": "write &&",
    "|": "write ||",
    "{": "an expression stands without braces",
    "}": "an expression stands without braces",
    "$": "write the path alone: data.x",
    **dict.fromkeys("“”„‘’«»", "write plain quotes: 'text'"),
}
_OTHER_LETTERS = "a name has only ASCII letters, digits and '_'; write outputs[\"…\"] for others"


class Cursor:
    """The tokens of a text, read one by one; the last one is the end, and stays.

    stranger: the first character that cannot stand in an expression; the tokens end there.
    """

    def __init__(self, text: str, column: int) -> None:
        found, self.stranger = _tokens(text, column)
        self._tokens = [*found, Token("end", "", found[-1].end_column if found else column)]
        self._at = 0

    @property
    def token(self) -> Token:
        """The next one."""
        return self._tokens[self._at]

    @property
    def before(self) -> Token | None:
        """The one taken last."""
        return self._tokens[self._at - 1] if self._at else None

    @property
    def following(self) -> Token:
        """The one after the next one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def is_operator(self, *texts: str) -> bool:
        """True if the next one is one of these operators."""
        return self.token.kind == "operator" and self.token.text in texts

    def take(self) -> Token:
        """The next one, and go on."""
        token = self.token
        self._at += token.kind != "end"
        return token


def _tokens(text: str, column: int) -> tuple[list[Token], LangProblem | None]:
    """The tokens up to the first character that cannot stand in an expression, and that character."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return found, _stranger(text[at], column + at)
        kind = str(match.lastgroup)
        if kind != "space":
            found.append(Token(kind, match.group(), column + at))
        at = match.end()
    return found, None


def _stranger(character: str, column: int) -> LangProblem:
    hint = _STRANGE.get(character)
    if hint is None and character.isalnum():
        hint = _OTHER_LETTERS
    elif hint is None and character in WHITE_SPACE:
        hint = "write a plain space"
    return LangProblem("expression_character", f"{character!r} cannot stand in an expression", column, hint)
