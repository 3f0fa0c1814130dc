"""The intent gate: all receipts of one intent, and what may be done now (effect-receipts 7.1). Pure.

`gate()` is asked inside the transaction that will act on its answer, so nothing can change between
the question and the act. The easy mistake: looking at one attempt only. A receipt of any attempt
that may have been sent decides for all later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orch8_local.model.outcome import Mode
from orch8_local.model.records import Receipt
from orch8_local.model.states import ReceiptState as R


@dataclass(frozen=True, slots=True)
class Replay:
    """It has happened: use the stored output, send nothing."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Join:
    """This process is sending it right now: wait for that dispatch and share its result."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Blocked:
    """It may have happened: send nothing. `lost` are dispatched ones whose process is gone."""

    receipts: tuple[Receipt, ...]
    lost: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class Undone:
    """It happened and was undone: doing it again is a new action."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Reuse:
    """A prepared receipt of exactly this request: nothing was sent, go on with it."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """Free to try: write a new receipt with this attempt number.

    superseded: prepared receipts of another request, to be abandoned first. repeatable: unknown ones
    whose author declared repeating harmless, to be closed first.
    """

    attempt: int
    superseded: tuple[Receipt, ...] = ()
    repeatable: tuple[Receipt, ...] = ()


Gate = Replay | Join | Blocked | Undone | Reuse | NewAttempt


def gate(
    receipts: Sequence[Receipt],
    *,
    mode: Mode,
    request_sha256: str,
    boot_id: str,
    live_effect_ids: Collection[str],
) -> Gate:
    """Decide over all receipts of one intent, in the order of the table in 7.1.

    `live_effect_ids` are the dispatches registered in this process. A mode that cannot be honoured
    yet (`idempotent`) is treated as at-most-once: stop and ask.
    """
    done = [r for r in receipts if r.state in (R.COMMITTED, R.VERIFIED)]
    if done:
        return Replay(done[-1])
    dispatched = [r for r in receipts if r.state is R.DISPATCHED]
    live = [r for r in dispatched if r.boot_id == boot_id and r.id in live_effect_ids]
    if live:
        return Join(live[-1])
    unknown = [r for r in receipts if r.state is R.UNKNOWN]
    if (dispatched or unknown) and mode is not Mode.REPEATABLE:
        return Blocked(tuple(unknown + dispatched), lost=tuple(dispatched))
    compensated = [r for r in receipts if r.state is R.COMPENSATED]
    if compensated:
        return Undone(compensated[-1])
    prepared = [r for r in receipts if r.state in (R.PLANNED, R.PREPARED)]
    same = [r for r in prepared if r.request_sha256 == request_sha256 and r.state is R.PREPARED]
    if same and not unknown and not dispatched:
        return Reuse(same[-1])
    return NewAttempt(
        attempt=1 + max((r.attempt for r in receipts), default=-1),
        superseded=tuple(prepared),
        repeatable=tuple(unknown + dispatched),
    )
