"""What is wrong with a template or an expression, and where in its text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LangProblem:
    """column: 1-based, in characters of the checked text. is_warning: it runs, but hardly as meant."""

    code: str
    message: str
    column: int
    suggestion: str | None = None
    is_warning: bool = False


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def is_slip(word: str, known: str) -> bool:
    """True if `word` is `known` with one or two slips of the finger; short words are never a slip."""
    if word == known or len(word) < 3 or abs(len(word) - len(known)) > 2:
        return False
    allowed = 1 if len(known) <= 4 else 2
    row = list(range(len(known) + 1))
    for i, a in enumerate(word, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(known, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1] <= allowed
