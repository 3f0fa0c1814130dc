"""Rows as values: they go out and come back unchanged, and time is told exactly."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch8_local.model import records
from orch8_local.model.records import Evidence, Failure, Instance, Node, Receipt, rfc3339
from orch8_local.model.states import InstanceState, NodeState, ReceiptState
from tests.pure.gate_model import receipt

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)

WIRE_KEYS = [
    "id",
    "tenant_id",
    "continuity_id",
    "epoch",
    "instance_id",
    "block_id",
    "kind",
    "state",
    "destination_fingerprint",
    "idempotency_key",
    "request_sha256",
    "provider_receipt_id",
    "attempt",
    "created_at",
    "updated_at",
]
LOCAL_KEYS = {
    "intent_id",
    "mode",
    "scope",
    "handler",
    "outcome",
    "age_s",
    "sent_key",
    "destination",
    "version",
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
failures = st.builds(
    Failure,
    kind=st.sampled_from(["effect_blocked", "step_failed", "crash_loop"]),
    message=texts,
    block_id=st.none() | texts,
    effect_ids=st.lists(texts, max_size=3).map(tuple),
    details=st.none() | st.dictionaries(texts, st.integers(), max_size=3),
    attempt=st.none() | st.integers(0, 9),
)


@given(st.integers(FIRST_US, LAST_US))
def test_times_are_exact(at_us: int) -> None:
    """A time on the wire is RFC 3339 in UTC, exact to the microsecond, for every year it can show."""
    text = rfc3339(at_us)
    assert text.endswith("Z")
    assert datetime.fromisoformat(text) - EPOCH == timedelta(microseconds=at_us)


@given(st.integers(0, LAST_US), st.integers(0, LAST_US))
def test_times_sort_as_text(one: int, other: int) -> None:
    """Times compare as text in the same order as in time."""
    assert (rfc3339(one) < rfc3339(other)) == (one < other)


def test_time_of_the_example() -> None:
    """The time of the specification's example receipt is written as it stands there."""
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    assert rfc3339((at - EPOCH) // timedelta(microseconds=1)) == "2026-01-02T03:04:05.678901Z"


def test_far_future_is_capped() -> None:
    """A time beyond the year 9999 is still shown as a valid time."""
    assert rfc3339(2**62).startswith("9999-")


@given(failures)
def test_failure_survives_storage(failure: Failure) -> None:
    """Why a run stopped comes back from its JSON form unchanged."""
    assert Failure.from_dict(json.loads(json.dumps(failure.as_dict()))) == failure


def test_absent_parts_of_a_failure_have_defaults() -> None:
    """A failure written with fewer fields is still readable."""
    assert Failure.from_dict({"kind": "step_failed", "message": "no"}) == Failure("step_failed", "no")


@pytest.mark.parametrize("kind", ["effect_blocked", "step_failed", "effect_compensated", "crash_loop", "not_built"])
def test_only_an_unknown_effect_blocks(kind: str) -> None:
    """Blocked means exactly: failed because an outcome is not known (product D1)."""
    assert Failure(kind, "x").is_blocked is (kind == "effect_blocked")


@pytest.mark.parametrize("state", InstanceState)
def test_a_run_is_blocked_only_while_failed(state: InstanceState) -> None:
    """A run that was resumed is not blocked any more, even if its old failure is still written."""
    failure = Failure("effect_blocked", "x", effect_ids=("e",))
    assert _instance(state, failure).is_blocked is (state is InstanceState.FAILED)
    assert not _instance(state, Failure("step_failed", "x")).is_blocked
    assert not _instance(state, None).is_blocked


def test_receipt_on_the_wire() -> None:
    """A receipt is shown with every field of the specification; absent ones are null, never omitted."""
    wire = receipt(2, ReceiptState.DISPATCHED).as_wire(now_us=3_500_000)
    assert list(wire)[: len(WIRE_KEYS)] == WIRE_KEYS
    assert set(wire) >= LOCAL_KEYS
    assert wire["provider_receipt_id"] is None
    assert wire["state"] == "dispatched"
    assert wire["age_s"] == 3
    assert json.loads(json.dumps(wire)) == wire


def test_age_is_never_negative() -> None:
    """If the clock went back, a receipt is new, not from the future."""
    made = dataclasses.replace(receipt(0, ReceiptState.PREPARED), created_at_us=10_000_000)
    assert made.as_wire(now_us=0)["age_s"] == 0


@pytest.mark.parametrize("record", [Instance, Node, Receipt, Evidence, Failure, records.Output, records.Event])
def test_rows_cannot_be_changed(record: type) -> None:
    """A row is a value: a changed row comes from the store, never from an assignment."""
    assert record.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not hasattr(record, "__dict__") or "__dict__" not in record.__slots__  # type: ignore[attr-defined]


def test_a_node_knows_its_place() -> None:
    """A block of a run is addressed by its loop position and its id."""
    node = Node("outer#2/in%23ner#0", "charge", NodeState.PENDING)
    assert node.key == ("outer#2/in%23ner#0", "charge")
    assert node.scope_path == (("outer", 2), ("in#ner", 0))


def test_evidence_leaves_out_what_nobody_said() -> None:
    """Evidence shows what was given, and no empty fields that look like answers."""
    full = Evidence(
        "operator_attestation",
        note="seen in the portal",
        reference="ch_1",
        looked_at="portal",
        searched_for=("order-7",),
        facts={"status": 409},
    )
    assert full.as_dict() == {
        "kind": "operator_attestation",
        "note": "seen in the portal",
        "reference": "ch_1",
        "looked_at": "portal",
        "searched_for": ["order-7"],
        "status": 409,
    }
    assert Evidence("owner_gone").as_dict() == {"kind": "owner_gone"}


def _instance(state: InstanceState, failure: Failure | None) -> Instance:
    return Instance(
        id="i",
        sequence_sha256="s",
        sequence_name="n",
        sequence_version=1,
        state=state,
        priority=1,
        due_at_us=None,
        boot_id=None,
        claim_epoch=0,
        n_recoveries=0,
        n_steps=0,
        data=None,
        config=None,
        run_id="r",
        start_key=None,
        failure=failure,
        paused_reason=None,
        cancel_requested_at_us=None,
        created_at_us=0,
        started_at_us=None,
        updated_at_us=0,
        ended_at_us=None,
    )
