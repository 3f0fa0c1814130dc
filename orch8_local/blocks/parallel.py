"""Several branches at once (sequence-format 4.2)."""

from __future__ import annotations

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.kinds import ListOf
from orch8_local.blocks.shape import Place, part


@block_shape
class Parallel(Block):
    """Completes when every branch is done, fails if any block failed."""

    type = "parallel"

    branches: tuple[tuple[Block, ...], ...] = part(ListOf(Blocks(), low=1, high=256, code="branches.count"))

    def check(self, place: Place) -> None:
        """An empty branch does nothing."""
        for index, branch in enumerate(self.branches):
            if not branch:
                place.at("branches").at(index).doubt("branches.empty", "this branch has no blocks")
