"""Blocks, what to do if one fails, and what to do in any case (sequence-format 4.7)."""

from __future__ import annotations

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.shape import Place, part


@block_shape
class TryCatch(Block):
    """Runs catch if try failed, and finally always."""

    type = "try_catch"
    WRITTEN_AS_NULL = frozenset({"finally_block"})

    try_block: tuple[Block, ...] = part(Blocks(empty="try.empty"))
    catch_block: tuple[Block, ...] = part(Blocks())
    finally_block: tuple[Block, ...] | None = part(Blocks(), default=None)

    def check(self, place: Place) -> None:
        """An empty catch hides failures."""
        if not self.catch_block:
            message = "an empty 'catch_block' hides the failure"
            place.at("catch_block").doubt("try.catch_empty", message)
