"""Identity and hashes (effect-receipts section 3): every vector, and the laws behind them."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch8_local.model import ids

A = "018f3b2a-7c4d-7e21-9a5b-0123456789ab"
NIL = "00000000-0000-0000-0000-000000000000"
C = "26b00672-80c4-8634-857f-8de8d0e9b28c"
V9_PARAMS = {"url": "https://payments.example/charge", "idempotency_key": "order-7"}
V9 = "f8135a6f18339aab68c8e56e7f973f10d361e30e3b0cf29ad461ecf49a847341"
P = json.loads(
    r'{"z":1,"a":{"c":[3,{"y":null,"x":true}],"b":"\u00e9\n\"\\/\u007f\u2028"},'
    r'"Z":-5,"big":18446744073709551615}'
)
Q = {
    "model": "m-1",
    "provider": "acme",
    "topic": "t",
    "queue": "q",
    "resource": {"b": 2, "a": 1},
    "endpoint": "e",
    "url": "u",
    "other": "ignored",
}
INVARIANT = "018f3b2a-0000-7000-8000-000000000001"

VECTORS: list[tuple[str, str, str]] = [
    ("V1", ids.continuity_id(A), C),
    ("V2", ids.runtime_id(A), "8894741d-7ff5-83ff-a8ab-01538af15579"),
    ("V3", ids.effect_id(C, 0, A, "charge", 0), "cbc7938e-67cd-88d2-a89a-fd07cf7e50f4"),
    ("V4", ids.effect_id(C, 0, A, "charge", 1), "438f8784-d902-8533-8276-5b4c403089c2"),
    ("V5", ids.effect_id(C, 1, A, "charge", 0), "3bd06b06-463b-81ba-a23b-928bdf6e24f8"),
    ("V6", ids.effect_id(C, 0, A, "zahlung-ü", 0), "444a029d-7e1c-8742-ad9a-82fb2bfeef7b"),
    ("V7", ids.effect_id(C, 2**64 - 1, A, "charge", 2**32 - 1), "1a19eed8-5893-8878-82f2-9706e5d7ce64"),
    ("V8a", ids.continuity_id(NIL), "bb6feda9-4f03-840d-9061-af7e7c827fce"),
    ("V8b", ids.effect_id(NIL, 0, NIL, "a", 0), "cd4d8107-8b90-8cc7-8317-66a311199cd4"),
    ("V9", ids.request_sha256("http_request", V9_PARAMS), V9),
    (
        "V10",
        ids.destination_fingerprint("http_request", V9_PARAMS),
        "2b09da8782068cf19f3b143821fa2d3f3198df1e82482f770a6631f62b4eef25",
    ),
    (
        "V11",
        ids.request_sha256("custom_charge", P),
        "c50905045bd881fd446965200434fd8396b969e5737aad4748a94d0790f969f6",
    ),
    (
        "V12",
        ids.destination_fingerprint("custom_charge", P),
        "275ceaa819d907d4f18275b978d8434a5d3c996ff981758252dd8a485b79cd5a",
    ),
    (
        "V13",
        ids.request_sha256("noop_x", None),
        "98e710a004b23992c0cb48f3b3ed0f78d4e3e7f4c42e0e863fb3df124efe2684",
    ),
    (
        "V14",
        ids.destination_fingerprint("noop_x", None),
        "d9ce421c97b21fadc1641f847c5f47e6a5901ca092a3bc8deb90bad266cb4056",
    ),
    (
        "V15",
        ids.destination_fingerprint("llm_call", Q),
        "b5510092470eaf2ce1ae78d73a1c6a944c9fd54f7e63f46dfc5f61b26d7c427a",
    ),
    (
        "V16",
        ids.request_sha256("pay", {"amount": 100}),
        "6ae7a5d37a2e8c8fd08badcb0f58b7e6ea33d91f7dc590f205380762b0ec63c4",
    ),
    (
        "V17",
        ids.request_sha256("pay", {"amount": 100.0}),
        "d93e7a9e2d720747d12e063227df1f4e33d7c7ff7557750f49343b82713fe3e6",
    ),
    (
        "V18",
        ids.invariant_dedupe_key(INVARIANT, C, 0, [V9]),
        "36a99addc5a472db972fa27f5546ad52b963378da1025e0175bbb9e5309df178",
    ),
    (
        "V19a",
        ids.invariant_dedupe_key(INVARIANT, C, 0, [V9, V9]),
        "63d285be8518f3a27ad17f5ece62d268d5415c7055c0ebf5ecb31f9e4d074831",
    ),
    (
        "V19b",
        ids.invariant_dedupe_key(INVARIANT, C, 0, []),
        "1bd0ea88909bf50392b185202164164475742773825232bdeb6ee92e4a900145",
    ),
    ("L1", ids.intent_id(A, (), "charge"), "42d3da4b-a382-8c20-8d40-938c5b957bc8"),
    ("L2", ids.intent_id(A, (("items", 3),), "charge"), "b6511054-3ce1-8dc7-8846-656bd4f5eb2e"),
    ("L3", ids.intent_id(A, (("items", 3), ("inner", 0)), "charge"), "480ec1a0-d169-8140-af94-d53737b6b8ba"),
    ("L4", ids.intent_id(A, (), "charge", 1), "64c40482-9e2a-86af-8004-70dfa3ed0b04"),
    (
        "L5a",
        ids.effect_id(C, 0, A, "charge", 0, scope=(("items", 3),)),
        "19c510c7-d699-884c-868d-62c2425c0ad2",
    ),
    (
        "L5b",
        ids.effect_id(C, 0, A, "charge", 1, scope=(("items", 3),)),
        "9911bea7-a647-80fd-90dd-59b049a2ea8d",
    ),
]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=12,
)
scopes = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**32 - 1)), max_size=4
).map(tuple)


@pytest.mark.parametrize(("name", "got", "wanted"), VECTORS, ids=[row[0] for row in VECTORS])
def test_vector(name: str, got: str, wanted: str) -> None:
    """Ids and hashes are byte for byte those of the specification, so any tool can re-compute them."""
    assert got == wanted


def test_preimage_of_an_effect_id() -> None:
    """An effect id is the digest of exactly the published bytes, in the published order."""
    preimage = bytes.fromhex(
        "6f726368382d6566666563742d76310026b0067280c48634857f8de8d0e9b28c0000000000000000"
        "018f3b2a7c4d7e219a5b0123456789ab63686172676500000000"
    )
    assert ids.derived_uuid(hashlib.sha256(preimage).digest()) == ids.effect_id(C, 0, A, "charge", 0)


@given(st.binary(min_size=32, max_size=32))
def test_derived_ids_are_version_8_uuids(digest: bytes) -> None:
    """A derived id is a well-formed version 8 UUID in lower-case text."""
    text = ids.derived_uuid(digest)
    assert UUID(text).version == 8
    assert UUID(text).variant == "specified in RFC 4122"
    assert text == str(UUID(text))


def test_an_intent_is_shared_by_attempts_and_split_by_everything_else() -> None:
    """One business action has one intent; another run, position, block or re-run has another."""
    base = ids.intent_id(A, (), "charge")
    others = [
        ids.intent_id(NIL, (), "charge"),
        ids.intent_id(A, (("charge", 0),), "charge"),
        ids.intent_id(A, (), "charge2"),
        ids.intent_id(A, (), "charge", 1),
    ]
    assert len({base, *others}) == 5


def test_no_two_positions_share_an_effect_id() -> None:
    """Attempts, loop positions and re-runs of one block all have different effect ids."""
    seen = {
        ids.effect_id(C, 0, A, "charge", attempt, scope=scope, rerun=rerun)
        for attempt in range(3)
        for scope in [(), (("l", 0),), (("l", 1),), (("l", 0), ("m", 0)), (("l0", 0),)]
        for rerun in range(3)
    }
    assert len(seen) == 3 * 5 * 3


@given(scopes)
def test_scope_text_is_reversible(scope: ids.ScopePath) -> None:
    """The readable form of a loop position names exactly one position, whatever the block is called."""
    assert ids.parse_scope(ids.scope_text(scope)) == scope


@given(scopes, scopes)
def test_scope_bytes_are_unambiguous(one: ids.ScopePath, other: ids.ScopePath) -> None:
    """Two loop positions never have the same bytes, hence never the same intent."""
    assert (ids.scope_bytes(one) == ids.scope_bytes(other)) == (one == other)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ([], "[]"),
        ({}, "{}"),
        ({"b": 1, "a": [1, {"d": None, "c": False}]}, '{"a":[1,{"c":false,"d":null}],"b":1}'),
        ({"ä": 1, "z": 2, "Z": 3}, '{"Z":3,"z":2,"ä":1}'),
        ('"\\/\b\t\n\f\r\x00\x1f', '"\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001f"'),
        ("\x7f\u2028é😀", '"\x7f\u2028é😀"'),
        (2**64, "18446744073709551616"),
        (-(2**70), str(-(2**70))),
        (1.0, "1.0"),
        (100.5, "100.5"),
        (-0.0, "-0.0"),
        ((1, 2), "[1,2]"),
    ],
)
def test_canonical_json(value: Any, text: str) -> None:
    """One value has one text: sorted keys, no white space, raw UTF-8, exact integers."""
    assert ids.canonical_json(value) == text


def test_integral_floats_are_not_integers() -> None:
    """`1` and `1.0` are different requests."""
    assert ids.canonical_json(1) != ids.canonical_json(1.0)


def test_keys_sort_by_code_point() -> None:
    """Key order is that of the UTF-8 bytes, also beyond the basic plane."""
    keys = ["\U0001f600", "\uffee", "a", "é"]
    text = ids.canonical_json(dict.fromkeys(keys, 0))
    assert list(json.loads(text)) == sorted(keys, key=lambda key: key.encode())


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), "\ud800", {"\udfff": 1}, b"x", {1, 2}, Ellipsis],
    ids=repr,
)
def test_what_is_not_json_has_no_text(value: Any) -> None:
    """NaN, infinities, lone surrogates and foreign types are refused before they can be hashed."""
    with pytest.raises((ValueError, TypeError)):
        ids.canonical_json(value)
    assert ids.json_fault(value) is not None


def test_keys_that_are_not_text_are_refused() -> None:
    """A key that is not text is named as a fault, since it would come back as another key."""
    fault = ids.json_fault({"a": [{1: 2}]})
    assert fault is not None
    assert "$.a[0]" in fault
    assert "1" in fault


def test_a_fault_names_its_place() -> None:
    """A value that is not JSON is reported with the path at which it stands."""
    assert ids.json_fault({"a": [0, {"b": float("nan")}]}) == "$.a[1].b is nan, which JSON cannot hold"
    assert ids.json_fault({"a": "\ud800"}, "params") == ("params.a holds a lone surrogate, which is not valid Unicode")


def test_nesting_has_a_limit() -> None:
    """A value nested too deep is named as a fault instead of overflowing the stack."""
    value: Any = 0
    for _ in range(100_000):
        value = [value]
    fault = ids.json_fault(value)
    assert fault is not None
    assert "nested" in fault


@given(json_values)
def test_canonical_text_means_the_value(value: Any) -> None:
    """Canonical text parses back to the value it was made from, and is stable."""
    text = ids.canonical_json(value)
    assert ids.json_fault(value) is None
    assert json.loads(text) == value
    assert ids.canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(), max_size=6))
def test_insertion_order_does_not_change_the_hash(params: dict[str, int]) -> None:
    """The order in which params were written does not make another request."""
    turned = dict(reversed(params.items()))
    assert ids.request_sha256("h", params) == ids.request_sha256("h", turned)
    assert ids.destination_fingerprint("h", params) == ids.destination_fingerprint("h", turned)


def test_destination_looks_only_at_where_it_goes() -> None:
    """The destination ignores what is sent, and sees a changed query string as another place."""
    one = ids.destination_fingerprint("h", {"url": "https://a.example/x", "body": 1})
    assert one == ids.destination_fingerprint("h", {"url": "https://a.example/x", "body": 2})
    assert one != ids.destination_fingerprint("h", {"url": "https://a.example/x?y", "body": 1})
    assert ids.destination_fingerprint("h", [1]) == ids.destination_fingerprint("h", {})
