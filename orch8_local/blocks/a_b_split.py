"""One of several variants, chosen by weight and the same for every visit (sequence-format 4.9)."""

from __future__ import annotations

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.kinds import ListOf, Shape, Text, Whole
from orch8_local.blocks.shape import Object, Place, part


class Variant(Object):
    """One way, and how often it is taken."""

    name: str = part(Text(blank="split.name_blank"))
    weight: int = part(Whole(0, 2**32 - 1))
    blocks: tuple[Block, ...] = part(Blocks())


@block_shape
class ABSplit(Block):
    """Chooses one variant. Weights need not add up to 100."""

    type = "a_b_split"

    variants: tuple[Variant, ...] = part(ListOf(Shape(Variant), low=2, code="split.variants"))

    def check(self, place: Place) -> None:
        """Names differ, and something can be chosen."""
        seen: set[str] = set()
        for index, variant in enumerate(self.variants):
            here = place.at("variants").at(index)
            if variant.name in seen:
                here.at("name").fault("split.name_twice", f"{variant.name!r} is the name of two variants")
            if variant.weight == 0:
                message = f"{variant.name!r} has weight 0 and is never chosen"
                here.at("weight").doubt("split.weight_zero", message)
            seen.add(variant.name)
        if not any(variant.weight for variant in self.variants):
            place.at("variants").fault("split.weights", "all weights are 0", suggestion="give one a weight")
