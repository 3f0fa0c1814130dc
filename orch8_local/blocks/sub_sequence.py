"""Another sequence as a child (sequence-format 4.8)."""

from __future__ import annotations

from typing import Any

from orch8_local.blocks.block import Block, block_shape
from orch8_local.blocks.kinds import AnyJson, Text, Whole
from orch8_local.blocks.shape import part

Json = Any


@block_shape
class SubSequence(Block):
    """Starts a child run and waits for it. input: becomes the child's data, templates resolved."""

    type = "sub_sequence"
    WRITTEN_AS_NULL = frozenset({"input"})

    sequence_name: str = part(Text(blank="sub_sequence.name_empty"))
    version: int | None = part(Whole(-(2**31), 2**31 - 1), default=None)
    input: Json = part(AnyJson(has_templates=True), default=None)
