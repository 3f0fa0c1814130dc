"""Blocks: the registry of their shapes, lists of them, and the way down to the ones below.

Source: sequence-format 4, 11.1. The easy mistake: following nested blocks before looking at the depth;
beyond 64 levels nothing is read any more.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from orch8_local.blocks.kinds import ListOf, Shape, Text
from orch8_local.blocks.shape import (
    INVALID,
    Kind,
    Object,
    Place,
    kinds_of,
    of_block,
    part,
    read_object,
    shown,
)

Json = Any

MAX_BLOCK_DEPTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Object):
    """The base of all block types."""

    type: ClassVar[str]
    id: str = part(Text(empty="block.id_empty"))

    def to_json(self) -> dict[str, Json]:
        """The stored form, with its type."""
        return {"type": self.type, **Object.to_json(self)}


BLOCK_SHAPES: dict[str, type[Block]] = {}
TYPE_ALIASES = {"ab_split": "a_b_split"}
_MEANT_TYPES = {
    "if": "router",
    "switch": "router",
    "foreach": "for_each",
    "map": "for_each",
    "while": "loop",
    "try": "try_catch",
    "call": "sub_sequence",
    "task": "step",
    "http_request": "step",
}


def block_shape(shape: type[Block]) -> type[Block]:
    """Register a block type under its name."""
    BLOCK_SHAPES[shape.type] = shape
    return shape


def read_block(value: Json, place: Place) -> Any:
    """Read one block of any type."""
    if not isinstance(value, dict):
        place.wrong_type("a block (an object)", value)
        return INVALID
    given_id = value.get("id")
    here = dataclasses.replace(place, block_id=given_id if isinstance(given_id, str) else None)
    if place.depth > MAX_BLOCK_DEPTH:
        here.fault("block.depth", f"blocks are nested more than {MAX_BLOCK_DEPTH} deep", suggestion="flatten them")
        return INVALID
    given = value.get("type")
    if given is None:
        here.fault("type.missing", f"'type' is missing{of_block(here)}", suggestion='add "type": "step"')
        return INVALID
    name = TYPE_ALIASES.get(given, given) if isinstance(given, str) else given
    shape = BLOCK_SHAPES.get(name) if isinstance(name, str) else None
    if shape is None:
        near = _MEANT_TYPES.get(str(given)) or next(
            iter(difflib.get_close_matches(str(given), BLOCK_SHAPES, n=1, cutoff=0.6)), None
        )
        hint = f"did you mean {near!r}?" if near else f"known are {', '.join(BLOCK_SHAPES)}"
        here.at("type").fault("type.block", f"there is no block type {shown(given)}", suggestion=hint)
        return INVALID
    return read_object(shape, value, here, extra=("type",))


@dataclass(frozen=True, slots=True)
class OneBlock:
    """A single block, one level deeper."""

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        return read_block(value, dataclasses.replace(place, depth=place.depth + 1))


@dataclass(frozen=True, slots=True)
class Blocks:
    """A list of blocks. empty: the code of the fault if there are none; deeper: inside a composite."""

    empty: str | None = None
    deeper: int = 1

    def read(self, value: Json, place: Place) -> Any:
        """See Kind. The list becomes a tuple."""
        if not isinstance(value, list):
            place.wrong_type("a list of blocks", value, "put it into [ ]" if isinstance(value, dict) else None)
            return INVALID
        if not value and self.empty is not None:
            place.fault(self.empty, f"{place.name!r} must have at least one block")
            return INVALID
        inside = dataclasses.replace(place, depth=place.depth + self.deeper)
        read = [read_block(item, inside.at(index)) for index, item in enumerate(value)]
        return INVALID if any(item is INVALID for item in read) else tuple(read)


def children_of(owner: Object) -> Iterator[tuple[str, Block]]:
    """(pointer below the owner, block) of every block directly below, in the order of the document."""
    for name, field in kinds_of(type(owner)).items():
        yield from _below(getattr(owner, name), field.metadata["kind"], f"/{name}")


def _below(value: Any, kind: Kind, pointer: str) -> Iterator[tuple[str, Block]]:
    if value is None:
        return
    if isinstance(kind, OneBlock):
        yield pointer, value
    elif isinstance(kind, Blocks):
        for index, block in enumerate(value):
            yield f"{pointer}/{index}", block
    elif isinstance(kind, ListOf):
        for index, item in enumerate(value):
            yield from _below(item, kind.kind, f"{pointer}/{index}")
    elif isinstance(kind, Shape):
        for suffix, block in children_of(value):
            yield pointer + suffix, block
