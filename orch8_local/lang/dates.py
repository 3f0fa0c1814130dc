"""Moments as text, for `now`, `format_date` and `day_of_week` (sequence-format 8.6).

A moment is RFC 3339 with an offset and is printed in that offset; names are English whatever the
locale says. An unreadable moment or an unknown code gives None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone

_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-5][0-9]))",
    re.ASCII,
)
_CODE = re.compile(r"%([-_0]?)(\.3f|[369]f|:z|.)", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


class _Moment:
    """A date and time in its own offset, with all digits of its fraction."""

    def __init__(self, at: datetime, nanoseconds: int) -> None:
        self.at = at
        self.nanoseconds = nanoseconds


def rfc3339(now_us: int) -> str:
    """UTC with nanoseconds and `+00:00`."""
    at = _EPOCH + timedelta(microseconds=now_us)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}000+00:00"


def day_of_week(moment: str) -> int | None:
    """0 is Monday."""
    read = _read(moment)
    return None if read is None else read.at.weekday()


def formatted(moment: str, pattern: str) -> str | None:
    """The moment as the pattern says."""
    read = _read(moment)
    if read is None:
        return None
    pieces: list[str] = []
    at = 0
    for code in _CODE.finditer(pattern):
        piece = _piece(read, code.group(2), code.group(1))
        if piece is None:
            return None
        pieces += [pattern[at : code.start()], piece]
        at = code.end()
    rest = pattern[at:]
    return None if "%" in rest else "".join([*pieces, rest])


def _read(text: str) -> _Moment | None:
    """A leap second is read as the second before it."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    *date_and_time, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = map(int, date_and_time)
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    try:
        at = datetime(year, month, day, hour, minute, 59 if second == 60 else second, tzinfo=timezone(offset))
    except ValueError:
        return None
    return _Moment(at, int((fraction or "0")[:9].ljust(9, "0")))


def _padded(number: int, width: int, pad: str, flag: str) -> str:
    pad = {"-": "", "_": " ", "0": "0"}.get(flag, pad)
    return str(number).rjust(width, pad) if pad else str(number)


def _piece(moment: _Moment, code: str, flag: str) -> str | None:
    if code in _NUMBERS:
        number, width, pad = _NUMBERS[code]
        return _padded(number(moment), width, pad, flag)
    if flag:
        return None
    if code in _TEXTS:
        return _TEXTS[code](moment)
    return _composed(moment, _COMPOSED[code]) if code in _COMPOSED else None


def _composed(moment: _Moment, pattern: str) -> str:
    """A pattern of this module's own, which holds known codes only."""
    return _CODE.sub(lambda code: str(_piece(moment, code.group(2), code.group(1))), pattern)


def _offset(moment: _Moment, colon: str) -> str:
    minutes = int((moment.at.utcoffset() or timedelta()).total_seconds() // 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{colon}{abs(minutes) % 60:02d}"


_NUMBERS: Mapping[str, tuple[Callable[[_Moment], int], int, str]] = {
    "Y": (lambda m: m.at.year, 4, "0"),
    "C": (lambda m: m.at.year // 100, 2, "0"),
    "y": (lambda m: m.at.year % 100, 2, "0"),
    "m": (lambda m: m.at.month, 2, "0"),
    "d": (lambda m: m.at.day, 2, "0"),
    "e": (lambda m: m.at.day, 2, " "),
    "j": (lambda m: m.at.timetuple().tm_yday, 3, "0"),
    "u": (lambda m: m.at.isoweekday(), 1, "0"),
    "w": (lambda m: m.at.isoweekday() % 7, 1, "0"),
    "H": (lambda m: m.at.hour, 2, "0"),
    "k": (lambda m: m.at.hour, 2, " "),
    "I": (lambda m: m.at.hour % 12 or 12, 2, "0"),
    "l": (lambda m: m.at.hour % 12 or 12, 2, " "),
    "M": (lambda m: m.at.minute, 2, "0"),
    "S": (lambda m: m.at.second, 2, "0"),
    "V": (lambda m: m.at.isocalendar().week, 2, "0"),
    "G": (lambda m: m.at.isocalendar().year, 4, "0"),
    "U": (lambda m: (m.at.timetuple().tm_yday + 6 - m.at.isoweekday() % 7) // 7, 2, "0"),
    "W": (lambda m: (m.at.timetuple().tm_yday + 6 - m.at.weekday()) // 7, 2, "0"),
    "s": (lambda m: int(m.at.timestamp()), 1, "0"),
}
_TEXTS: Mapping[str, Callable[[_Moment], str]] = {
    "b": lambda m: _MONTHS[m.at.month - 1][:3],
    "h": lambda m: _MONTHS[m.at.month - 1][:3],
    "B": lambda m: _MONTHS[m.at.month - 1],
    "a": lambda m: _DAYS[m.at.weekday()][:3],
    "A": lambda m: _DAYS[m.at.weekday()],
    "p": lambda m: "PM" if m.at.hour >= 12 else "AM",
    "P": lambda m: "pm" if m.at.hour >= 12 else "am",
    "f": lambda m: f"{m.nanoseconds:09d}",
    "3f": lambda m: f"{m.nanoseconds:09d}"[:3],
    "6f": lambda m: f"{m.nanoseconds:09d}"[:6],
    "9f": lambda m: f"{m.nanoseconds:09d}",
    ".3f": lambda m: f".{m.nanoseconds:09d}"[:4],
    "z": lambda m: _offset(m, ""),
    ":z": lambda m: _offset(m, ":"),
    "Z": lambda m: _offset(m, ":"),
    "n": lambda _: "\n",
    "t": lambda _: "\t",
    "%": lambda _: "%",
}
_COMPOSED: Mapping[str, str] = {
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "R": "%H:%M",
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "X": "%H:%M:%S",
    "r": "%I:%M:%S %p",
    "c": "%a %b %e %H:%M:%S %Y",
    "+": "%Y-%m-%dT%H:%M:%S%:z",
}
