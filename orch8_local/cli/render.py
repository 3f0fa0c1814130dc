"""How facts look as text: safe characters, short ids, times, ages, states, tables.

Owns every conversion from a stored value to something a person reads. Text from outside is never
trusted: control characters, escape sequences and direction marks are shown as escapes. The easy
mistake: printing a value that did not go through `safe` or `one_line`.
"""

from __future__ import annotations

import unicodedata

_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_KEPT = frozenset("\u200d\ufe0f")  # joiners inside emoji


def safe(text: str, *, keep: str = "\n\t") -> str:
    """Text without anything that moves the cursor, changes colours or reorders what is shown.

    keep: control characters that may stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or c in _KEPT or _is_plain(c) else _escape(c) for c in text)


def one_line(text: str) -> str:
    """`safe` text on one line: line ends and tabs are shown as `\\n`, `\\t`."""
    return safe(text, keep="")


def _is_plain(character: str) -> bool:
    return unicodedata.category(character) not in _ESCAPED_CATEGORIES


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if named:
        return named
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
