"""Blocks that are finished even if the run is cancelled (sequence-format 4.10)."""

from __future__ import annotations

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.shape import part


@block_shape
class CancellationScope(Block):
    """Once begun, it is finished."""

    type = "cancellation_scope"

    blocks: tuple[Block, ...] = part(Blocks(empty="scope.empty"))
