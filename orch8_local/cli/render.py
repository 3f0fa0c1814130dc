"""How facts look as text: safe characters, short ids, times, ages, amounts, JSON.

Owns every conversion from a stored value to something a person reads. Text from outside is never
trusted: control characters, escape sequences and direction marks are shown as escapes. The easy
mistake: printing a value that did not go through `safe` or `one_line`.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from orch8_local.model.records import rfc3339

Json = Any

SHORT_RUN = 13
"""Characters of a run's id that are shown: its creation time in milliseconds."""
SHORT_EFFECT = 8

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


def short_run(instance_id: str) -> str:
    """The shown beginning of a run's id."""
    return instance_id[:SHORT_RUN]


def short_effect(effect_id: str) -> str:
    """The shown beginning of an effect's id."""
    return effect_id[:SHORT_EFFECT]


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, the last of them `…` if something was left out."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def json_line(value: Json, limit: int | None = None) -> str:
    """JSON on one line, as people read it, cut to `limit` characters."""
    text = one_line(json.dumps(value, ensure_ascii=False))
    return text if limit is None else cut(text, limit)


def json_block(value: Json) -> str:
    """JSON over several lines, as people read it."""
    return safe(json.dumps(value, ensure_ascii=False, indent=2))


def duration_text(seconds: float) -> str:
    """A length of time in the unit that fits: `340 ms`, `1.2 s`, `4 min 5 s`, `2 h 3 min`, `5 d 1 h`."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, below, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            count, rest = divmod(whole, size)
            return f"{count} {unit} {rest // below} {part}" if rest // below else f"{count} {unit}"
    return f"{whole} s"


def age_text(since_us: int, now_us: int) -> str:
    """How long ago, in one unit: `4 s`, `3 min`, `2 h`, `5 d`."""
    seconds = max(0, now_us - since_us) // 1_000_000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def elapsed_text(from_us: int, to_us: int) -> str:
    """The time between two moments."""
    return duration_text((to_us - from_us) / 1e6)


def clock_text(at_us: int, *, now_us: int | None = None) -> str:
    """Local time for people: `12:03:44` if it is today by `now_us`, else with the date."""
    try:
        moment = datetime.fromtimestamp(at_us / 1e6)  # noqa: DTZ006, RUF100 - local time is what people read
        is_today = now_us is not None and moment.date() == datetime.fromtimestamp(now_us / 1e6).date()
    except (OverflowError, OSError, ValueError):
        return rfc3339(at_us)
    return moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


def local_zone(at_us: int) -> str:
    """The zone of this machine's local times: `CET (+0100)`."""
    return datetime.fromtimestamp(at_us / 1e6).astimezone().strftime("%Z (%z)")


def count_text(n: int, singular: str, plural: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{n} {singular if n == 1 else plural or singular + 's'}"


def list_text(words: Iterable[str]) -> str:
    """`a, b and c`."""
    parts = list(words)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1] if parts else ""
