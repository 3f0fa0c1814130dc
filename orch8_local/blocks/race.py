"""The first branch wins (sequence-format 4.3)."""

from __future__ import annotations

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.kinds import ListOf, OneOf
from orch8_local.blocks.shape import Place, part


@block_shape
class Race(Block):
    """The first branch that drains wins, the others are cancelled."""

    type = "race"

    branches: tuple[tuple[Block, ...], ...] = part(ListOf(Blocks(), low=1, high=256, code="branches.count"))
    semantics: str | None = part(OneOf(("first_to_resolve", "first_to_succeed")), default=None)

    def check(self, place: Place) -> None:
        """A race has runners, and says what winning is."""
        if len(self.branches) < 2:
            place.at("branches").doubt("race.single", "a race with one branch is no race")
        if self.semantics is None:
            message = "without 'semantics' the first branch that ends wins, even if it failed"
            hint = 'say which is meant: "first_to_succeed" or "first_to_resolve"'
            place.doubt("race.semantics", message, hint)
