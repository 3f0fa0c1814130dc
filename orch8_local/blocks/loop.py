"""A body that is repeated (sequence-format 4.4)."""

from __future__ import annotations

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.kinds import Condition, Flag, Whole
from orch8_local.blocks.shape import part


@block_shape
class Loop(Block):
    """Runs its body while a condition holds. poll_interval: seconds between iterations."""

    type = "loop"

    condition: str = part(Condition(blank="loop.condition_blank"))
    body: tuple[Block, ...] = part(Blocks(empty="loop.empty"))
    max_iterations: int = part(Whole(1, 100_000, code="loop.iterations"), default=1000)
    break_on: str | None = part(Condition(blank=""), default=None)
    continue_on_error: bool = part(Flag(), default=False)
    poll_interval: int | None = part(Whole(0, 2**63 - 1), default=None)
    retain_iterations: int | None = part(Whole(0, 2**32 - 1), default=None)
