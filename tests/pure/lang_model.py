"""A model of expressions to hold the real one against: trees, their text, and what they are worth.

Written from the tables of sequence-format 8.1 to 8.5, not from the parser: the text has only the
parentheses that the grammar asks for, so a wrong precedence or direction changes the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]
"""("leaf", text, value) · ("list", *trees) · (prefix, tree) · (operator, left, right) · ("?", a, b, c)."""

DATA: dict[str, Any] = {
    "qty": 7,
    "price": 2.5,
    "name": "Ada",
    "code": "12",
    "note": "",
    "gap": None,
    "zero": 0,
    "on": True,
    "tags": ["red", 7, True],
    "user": {"age": 36},
}
LEAVES = [
    *(("leaf", f"{prefix}{key}", value) for key, value in DATA.items() for prefix in ("", "data.", "context.data.")),
    ("leaf", "user.age", 36),
    ("leaf", "tags.0", "red"),
    ("leaf", "tags.9", None),
    ("leaf", "nothing.at.all", None),
    *(("leaf", text, value) for text, value in (("true", True), ("false", False), ("null", None))),
    *(("leaf", text, value) for text, value in (("3", 3), ("0.5", 0.5), ("'x'", "x"), ('"12"', "12"), ("''", ""))),
]
NUMERIC_TEXTS = {"12": 12.0}
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LEVELS = {"?": 0, "||": 1, "&&": 2, "in": 3, **dict.fromkeys(COMPARISONS, 3), "+": 4, "-": 4, "*": 5, "/": 5}
UNARY, PRIMARY = 6, 7


def _grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    operators = st.sampled_from([name for name in LEVELS if name != "?"])
    return st.one_of(
        st.tuples(operators, inner, inner),
        st.tuples(st.sampled_from(["!", "neg"]), inner),
        st.tuples(st.just("?"), inner, inner, inner),
        st.lists(inner, max_size=3).map(lambda items: ("list", *items)),
    )


def trees() -> st.SearchStrategy[Tree]:
    """Trees that are shallow enough for the bound on nesting."""
    leaf = st.sampled_from(LEAVES)
    return _grown(leaf | _grown(leaf | _grown(leaf)))


def text_of(tree: Tree, space: str, least: int = 0) -> str:
    """The text of a tree. space: what stands between tokens. least: the loosest level allowed here."""
    kind = tree[0]
    if kind == "leaf":
        return str(tree[1])
    if kind == "list":
        return f"[{space}" + f",{space}".join(text_of(item, space) for item in tree[1:]) + f"{space}]"
    if kind in ("!", "neg"):
        level, text = UNARY, f"{'-' if kind == 'neg' else '!'}{space}{text_of(tree[1], space, UNARY)}"
    elif kind == "?":
        level = 0
        condition, yes, no = (text_of(part, space, 1) for part in tree[1:])
        text = f"{condition}{space}?{space}{yes}{space}:{space}{no}"
    else:
        level = LEVELS[kind]
        first, second = (level + 1, PRIMARY) if kind == "in" else (level + (level == 3), level + 1)
        gap = space or " " * (kind == "in")
        text = f"{text_of(tree[1], space, first)}{gap}{kind}{gap}{text_of(tree[2], space, second)}"
    return f"({space}{text}{space})" if level < least else text


def worth(tree: Tree) -> Any:
    """The value of a tree over DATA."""
    kind = tree[0]
    if kind == "leaf":
        return tree[2]
    values = [worth(part) for part in tree[1:]]
    if kind == "list":
        return values
    if kind == "!":
        return not truth(values[0])
    if kind == "neg":
        number = _number(values[0])
        return None if number is None else -number
    if kind == "?":
        return values[1] if truth(values[0]) else values[2]
    return _BINARY[kind](*values)


def truth(value: Any) -> bool:
    """False for null, false, zero, the empty text and the empty list."""
    return (value is not None and value is not False and value not in (0, "", [])) or isinstance(value, dict)


def same(a: Any, b: Any) -> bool:
    """Equal as JSON: numbers by value, everything else by kind too."""
    if isinstance(a, (list, dict)) or isinstance(b, (list, dict)):
        if type(a) is not type(b) or len(a) != len(b):
            return False
        if isinstance(a, list):
            return all(map(same, a, b))
        return all(key in b and same(a[key], b[key]) for key in a)
    return _kind(a) == _kind(b) and bool(a == b)


def _kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return NUMERIC_TEXTS.get(value)
    return float(value) if isinstance(value, (bool, int, float)) else None


def _calculated(calculate: Callable[[float, float], float | None]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        left, right = _number(a), _number(b)
        return None if left is None or right is None else calculate(left, right)

    return run


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: _kind(a) == _kind(b) and _kind(a) in ("number", "str") and compare(a, b)


_sum = _calculated(lambda a, b: a + b)
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "||": lambda a, b: truth(a) or truth(b),
    "&&": lambda a, b: truth(a) and truth(b),
    "==": same,
    "!=": lambda a, b: not same(a, b),
    "<": _ordered(lambda a, b: bool(a < b)),
    "<=": _ordered(lambda a, b: bool(a <= b)),
    ">": _ordered(lambda a, b: bool(a > b)),
    ">=": _ordered(lambda a, b: bool(a >= b)),
    "in": lambda a, b: isinstance(b, list) and any(same(a, item) for item in b),
    "+": lambda a, b: a + b if isinstance(a, str) and isinstance(b, str) else _sum(a, b),
    "-": _calculated(lambda a, b: a - b),
    "*": _calculated(lambda a, b: a * b),
    "/": _calculated(lambda a, b: a / b if b else None),
}
