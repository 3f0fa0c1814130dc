"""Actions, each with the way to undo it (sequence-format 4.11)."""

from __future__ import annotations

from typing import Any

from orch8_local.blocks.block import Block, OneBlock, block_shape
from orch8_local.blocks.kinds import ListOf, Shape, Text
from orch8_local.blocks.shape import INVALID, Kind, Object, Place, part

Json = Any


class _SagaId(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """An id in the space of block ids."""
        found = Text(empty="block.id_empty").read(value, place)
        if found is not INVALID:
            place.reading.saga_ids.append(place.note(found))
        return found


class SagaStep(Object):
    """One action and its compensation. Its id shares the space of block ids."""

    id: str = part(_SagaId())
    action: Block = part(OneBlock())
    compensation: Block | None = part(OneBlock(), default=None)


@block_shape
class Saga(Block):
    """Runs the actions in order; after a failure undoes those before it, last first, and fails."""

    type = "saga"

    steps: tuple[SagaStep, ...] = part(ListOf(Shape(SagaStep)))

    def check(self, place: Place) -> None:
        """An empty saga does nothing."""
        if not self.steps:
            place.at("steps").doubt("saga.empty", "this saga has no steps")
