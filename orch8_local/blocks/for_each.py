"""A body for every element of a list (sequence-format 4.5)."""

from __future__ import annotations

from dataclasses import dataclass

from orch8_local.blocks.block import Block, Blocks, block_shape
from orch8_local.blocks.kinds import TemplateText, Text, Whole
from orch8_local.blocks.shape import Place, part


@block_shape
@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach(Block):
    """Runs its body once per element, one after the other."""

    type = "for_each"

    collection: str = part(TemplateText(blank="for_each.collection_blank"))
    item_var: str = part(Text(blank="for_each.item_blank"), default="item")
    body: tuple[Block, ...] = part(Blocks(empty="for_each.empty"))
    max_iterations: int = part(Whole(1, 100_000, code="for_each.iterations"), default=1000)
    retain_iterations: int | None = part(Whole(0, 2**32 - 1), default=None)

    def check(self, place: Place) -> None:
        """An element that no path can reach, a path that will not be found."""
        if "." in self.item_var:
            message = f"'item_var' {self.item_var!r} has a dot, so no path can reach it"
            place.at("item_var").fault("for_each.item_dotted", message, suggestion="use a plain name")
        root, dot, rest = self.collection.partition(".")
        if "{{" not in self.collection and dot and root in ("context", "data", "outputs", "steps"):
            message = f"'collection' is a path inside the data; {self.collection!r} begins with a root"
            short = rest.removeprefix("data.") if root == "context" else rest
            hint = f"write {short!r}" if root in ("context", "data") else f'write "{{{{ {self.collection} }}}}"'
            place.at("collection").fault("for_each.root", message, suggestion=hint, is_warning=True)
