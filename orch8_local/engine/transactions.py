"""The names of all transactions: what each proves, once, in one list.

The crash harness kills at `<name>.begin`, `<name>.commit` and `<name>.after` of every one of them.
"""

from __future__ import annotations

from enum import StrEnum


class Transaction(StrEnum):
    """A whole transaction on the writer (effect-receipts 7.2)."""

    START = "start"
    ADD_SEQUENCE = "add_sequence"
    CLAIM = "claim"
    T0_PREPARE = "t0_prepare"
    T1_DISPATCH = "t1_dispatch"
    T3_COMMIT = "t3_commit"
    T3_UNKNOWN = "t3_unknown"
    T3_ABANDON = "t3_abandon"
    STEP_END = "step_end"
    PARK = "park"
    LATE_ANSWER = "late_answer"
    RESOLVE = "resolve"
    CANCEL = "cancel"
    RETRY = "retry"
    SWEEP = "sweep"
    COMMAND_REFUSED = "command_refused"


TRANSACTIONS = tuple(Transaction)
