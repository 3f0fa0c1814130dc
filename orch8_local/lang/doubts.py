"""What an author of an expression probably meant (sequence-format 8, S14, S20).

Every path that leads nowhere is null without a word, and null is false: a step is skipped, and the
run looks right. So what is legal and hardly meant is said when the document is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orch8_local.lang.lexer import Token
from orch8_local.lang.path import CONTEXT_SECTIONS, ROOTS
from orch8_local.lang.problem import LangProblem, shown, slip_of

_FOREIGN_WORDS: Mapping[str, str] = {"and": "&&", "or": "||", "not": "!", "is": "=="}
_FOREIGN_CONSTANTS: Mapping[str, str] = {
    **dict.fromkeys(("True", "TRUE"), "true"),
    **dict.fromkeys(("False", "FALSE"), "false"),
    **dict.fromkeys(("None", "NULL", "Null", "nil", "undefined"), "null"),
}


def about_path(keys: tuple[str, ...], column: int) -> Iterator[LangProblem]:
    """A path that cannot lead anywhere, or whose root is one with a slip in it."""
    root, text = keys[0], shown(".".join(keys))
    if root == "context" and (len(keys) == 1 or keys[1] not in CONTEXT_SECTIONS):
        message = f"{text} is always null: context has only data and config"
        yield _doubt("expression_root", message, column, "write data.… or config.…")
    elif len(keys) == 1 and root in _FOREIGN_CONSTANTS:
        yield _doubt("expression_word", f"{text} reads data.{root}", column, f"write {_FOREIGN_CONSTANTS[root]}")
    elif len(keys) > 1 and (slip := slip_of(root, (*ROOTS, "context"))) is not None:
        message = f"{root!r} is no root: this reads data.{root}"
        yield _doubt("expression_root", message, column, f"did you mean {slip!r}? otherwise write data.{root}")
    elif "" in keys:
        yield _doubt("expression_path", f"{text} reads an empty key", column, "take the extra '.' out")


def about_hyphen(keys: tuple[str, ...], path: Token, minus: Token, following: Token) -> Iterator[LangProblem]:
    """`outputs.step-2.ok` is a difference; the id of a block needs brackets there."""
    if len(keys) != 2 or keys[0] not in ("outputs", "steps") or minus.text != "-":
        return
    is_one_word = minus.column == path.end_column and following.column == minus.end_column
    if is_one_word and following.kind in ("path", "number"):
        word = f"{keys[1]}-{following.text.partition('.')[0]}"
        message = f"this subtracts from {'.'.join(keys)}: '-' is always minus"
        hint = f'the output of block {word!r} is {keys[0]}["{word}"]'
        yield _doubt("expression_hyphen", message, minus.column, hint)


def about_not_in(first: Token) -> Iterator[LangProblem]:
    """`!a in b`, where `first` is the first token of what stands before `in`."""
    if first.text == "!":
        message = "'!' stands for the value before 'in', not for the whole"
        yield _doubt("expression_not_in", message, first.column, "write !(a in b)")


def about_left_over(before: Token | None, token: Token, hyphen: LangProblem | None) -> str | None:
    """What to write instead of a token that does not belong where it stands."""
    text = token.text
    for word in (text, before.text if before is not None else ""):
        if word in _FOREIGN_WORDS:
            return f"write {_FOREIGN_WORDS[word]}"
    if hyphen is not None:
        return hyphen.suggestion
    if text in ("==", "!=", "<", "<=", ">", ">="):
        return "compare twice: a < b && b < c"
    if text in ("?", ":"):
        return "put the inner one into parentheses"
    if token.kind == "path" and text[:1] in "eE" and before is not None and before.kind == "number":
        return "write the number without an exponent"
    return None


def _doubt(code: str, message: str, column: int, suggestion: str) -> LangProblem:
    return LangProblem(code, message, column, suggestion, is_warning=True)
