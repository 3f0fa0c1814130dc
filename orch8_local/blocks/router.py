"""The first route whose condition holds (sequence-format 4.6)."""

from __future__ import annotations

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.kinds import Condition, ListOf, Shape
from orch8_local.blocks.shape import Object, Place, part


class Route(Object):
    """One way, and when it is taken."""

    condition: str = part(Condition(blank="router.condition_blank"))
    blocks: tuple[Block, ...] = part(Blocks())

    def check(self, place: Place) -> None:
        """An empty route does nothing."""
        if not self.blocks:
            place.at("blocks").doubt("router.route_empty", "this route has no blocks")


@block_shape
class Router(Block):
    """Takes the first route that fits, else the default, else nothing."""

    type = "router"
    WRITTEN_AS_NULL = frozenset({"default"})

    routes: tuple[Route, ...] = part(ListOf(Shape(Route)))
    default: tuple[Block, ...] | None = part(Blocks(), default=None)

    def check(self, place: Place) -> None:
        """There is somewhere to go."""
        if not self.routes and self.default is None:
            place.at("routes").fault("router.empty", "a router needs a route or a 'default'")
