"""Blocks: the registry of their shapes, lists of them, and the way down to the ones below.

Source: sequence-format 4, 11.1. The easy mistake: following nested blocks before looking at the depth;
beyond 64 levels nothing is read any more.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Any, ClassVar

from orch8_local.blocks.kinds import ListOf, Shape, Text
from orch8_local.blocks.shape import (
    INVALID,
    Kind,
    Object,
    Place,
    part,
    read_object,
    shown,
)

Json = Any

MAX_BLOCK_DEPTH = 64


class Block(Object):
    """The base of all block types."""

    type: ClassVar[str]
    id: str = part(Text(empty="block.id_empty"))

    @classmethod
    def look(cls, raw: dict[str, Json], place: Place) -> None:
        """Note what only the whole document can judge, of a block that may turn out to be broken."""

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
    "branch": "router",
    "catch": "try_catch",
    "sequence": "sub_sequence",
    "split": "a_b_split",
}


def block_shape(shape: type[Block]) -> type[Block]:
    """Register a block type under its name."""
    BLOCK_SHAPES[shape.type] = shape
    return shape


def read_block(value: Json, place: Place) -> Any:
    """Read one block of any type."""
    if not isinstance(value, dict):
        place.unexpected("a block, an object", value)
        return INVALID
    given_id = value.get("id")
    is_queued = isinstance(value.get("queue_name"), str)
    here = dataclasses.replace(place, block_id=given_id if isinstance(given_id, str) else None, is_queued=is_queued)
    if isinstance(given_id, str):
        here.reading.block_ids.append(here.at("id").note(given_id))
    if place.depth > MAX_BLOCK_DEPTH:
        here.fault("block.depth", f"blocks are nested more than {MAX_BLOCK_DEPTH} deep", suggestion="flatten them")
        return INVALID
    shape, is_certain = _shape_of(value, here)
    if shape is None:
        return INVALID
    shape.look(value, here)
    read = read_object(shape, value, here, extra=("type",))
    return read if is_certain else INVALID


def _shape_of(value: dict[str, Json], place: Place) -> tuple[type[Block] | None, bool]:
    """The shape of a block, and whether that is certain; a slip in `type` still leaves one to check by."""
    given = value.get("type")
    if given is None:
        is_step = "handler" in value
        hint = 'add "type": "step"' if is_step else f"known are {', '.join(BLOCK_SHAPES)}"
        place.fault("type.missing", "'type' is missing", expected="type", suggestion=hint)
        return (BLOCK_SHAPES["step"] if is_step else None), False
    if not isinstance(given, str):
        place.at("type").unexpected("the type of a block, as text", given)
        return None, False
    shape = BLOCK_SHAPES.get(TYPE_ALIASES.get(given, given))
    if shape is not None:
        return shape, True
    slips = difflib.get_close_matches(given, BLOCK_SHAPES, n=1, cutoff=0.6)
    meant = _MEANT_TYPES.get(given.lower()) or next(iter(slips), None)
    hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(BLOCK_SHAPES)}"
    place.at("type").fault("type.block", f"there is no block type {shown(given)}", suggestion=hint)
    return (BLOCK_SHAPES[slips[0]] if slips and meant == slips[0] else None), False


class OneBlock(Kind):
    """A single block, one level deeper."""

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        return read_block(value, dataclasses.replace(place, depth=place.depth + 1))


class Blocks(Kind):
    """A list of blocks. empty: the code of the fault if there are none; deeper: inside a composite."""

    empty: str | None = None
    deeper: int = 1

    def read(self, value: Json, place: Place) -> Any:
        """See Kind. The list becomes a tuple."""
        if not isinstance(value, list):
            place.unexpected("a list of blocks", value, "put it into [ ]" if isinstance(value, dict) else None)
            return INVALID
        if not value and self.empty is not None:
            expected = "a list of at least one block"
            place.fault(self.empty, f"expected {expected}, got an empty one", expected=expected)
            return INVALID
        place.reading.lists.append((place.pointer, value))
        inside = dataclasses.replace(place, depth=place.depth + self.deeper)
        read = [read_block(item, inside.at(index)) for index, item in enumerate(value)]
        return INVALID if any(item is INVALID for item in read) else tuple(read)


def children_of(owner: Object) -> Iterator[tuple[str, Block]]:
    """(pointer below the owner, block) of every block directly below, in the order of the document."""
    for name, declared in owner.PARTS.items():
        yield from _below(getattr(owner, name), declared.kind, f"/{name}")


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
