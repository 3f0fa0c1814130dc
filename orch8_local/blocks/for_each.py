"""A body for every element of a list (sequence-format 4.5)."""

from __future__ import annotations

from dataclasses import replace

from orch8_local.blocks.block import Block, Blocks, block_shape, children_of
from orch8_local.blocks.kinds import TemplateText, Text, Whole
from orch8_local.blocks.shape import Place, part


@block_shape
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
            message = f"{self.item_var!r} has a dot, so no path can reach it"
            hint = f"write {self.item_var.replace('.', '_')!r}"
            place.at("item_var").fault("for_each.item_dotted", message, suggestion=hint, is_local=True)
        root, dot, rest = self.collection.partition(".")
        if "{{" not in self.collection and dot and root in ("context", "data", "outputs", "steps"):
            message = f"a plain path is looked up inside the data, and {self.collection!r} begins with a root"
            short = rest.removeprefix("data.") if root == "context" else rest
            hint = f"write {short!r}" if root in ("context", "data") else f'write "{{{{ {self.collection} }}}}"'
            place.at("collection").doubt("for_each.root", message, hint)
        self._hidden(place)

    def _hidden(self, place: Place) -> None:
        """An inner loop over the same name hides the element of this one, and removes it at its end."""
        stack = list(children_of(self))
        while stack:
            below, block = stack.pop()
            stack += [(below + further, child) for further, child in children_of(block)]
            if isinstance(block, ForEach) and block.item_var == self.item_var:
                at = replace(place, pointer=f"{place.pointer}{below}", block_id=block.id)
                message = f"the inner {self.item_var!r} hides that of {self.id!r} and is removed at its end"
                at.doubt("for_each.item_hidden", message, 'give one of them another "item_var"')
