"""Values and texts that the languages must cope with."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5),
    max_leaves=12,
)
"""Any JSON value."""

OFTEN_WRONG: st.SearchStrategy[Any] = st.sampled_from(
    [
        *("", "{{ config.secret }}", "\ud800", "12", " 12", "1_0", "٣", "inf", "-nan", "1e999", "9" * 5000),
        *(10**400, -(10**5000), 2**63, -0.0, 5e-324, 1.7e308, True, None, [], {}, [[]], [1.7e308, 1.7e308]),
        *("2026-03-01T10:00:00+01:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:60-23:59", "%s %c %V %U"),
    ]
)
"""Values that a careless implementation trips over."""

PIECES = st.lists(
    st.sampled_from(
        [
            *("{{", "}}", " ", "|", "data.qty", "data.tags", "config.x", "'", '"', "(", ")", ",", "default"),
            *("json(", "len(", "round(2)", "upper", "qty", "==", "&&", "||", "!", "-", "[", "]", "in", "?", ":"),
            *("1", "2.5", "null", "true", "sum(", "é", "\x00", ".", "\n", "replace('a','b')", "state.n", "\ud800"),
            *("outputs.step", '["step-2"]', "base64_decode", "truncate(", "nothing"),
        ]
    ),
    max_size=14,
).map("".join)
"""Texts that look like templates and expressions, some right and most of them wrong."""
