"""What is wrong with a template or an expression, and where in its text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class LangProblem:
    """column: 1-based, in characters of the checked text. is_warning: it runs, but hardly as meant."""

    code: str
    message: str
    column: int
    suggestion: str | None = None
    is_warning: bool = False


def shown(text: str) -> str:
    """A piece of a text as a message quotes it: on one line, and not longer than a reader wants."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    if len(word) > _LONGEST_SHOWN:
        return None
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def slip_of(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is, but for one or two slips of the finger.

    Words of one or two letters are never a slip. A known word itself is none either.
    """
    names = list(known)
    return None if word in names else next((name for name in names if _is_slip(word, name)), None)


def _is_slip(word: str, known: str) -> bool:
    if len(word) < 3 or abs(len(word) - len(known)) > 2:
        return False
    allowed = 1 if len(known) <= 4 else 2
    row = list(range(len(known) + 1))
    for i, a in enumerate(word, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(known, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1] <= allowed
