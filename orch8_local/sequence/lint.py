"""What only the whole document shows: ids, handlers, references, and what is probably not meant.

Judges the notes of a reading, so that a fault in one field hides none in another. Source:
sequence-format 11.1 (errors beyond the reference), 11.2. Works on the parsed languages, not on the
text, so prose that mentions `outputs.x` is left alone.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from orch8_local.blocks.shape import Finding, Note, Reading, shown
from orch8_local.lang import expression, template
from orch8_local.sequence.json_source import place_in_words
from orch8_local.sequence.params import param_findings

Json = Any

MAX_BLOCKS = 5000
MAX_ID_CHARACTERS = 128
_VOLATILE = frozenset({"now", "uuid", "random"})
_QUOTED = re.compile(r'"\{\{(?!\s*json\()[^{}"]*\}\}"')
_PLAIN_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = ("_interceptor:", "_sla:")
_PLUGINS = ("ap://", "grpc://", "wasm://")
_BUILT_IN_WORDS = """
noop log sleep fail transform assert set_state get_state delete_state merge_state http_request tool_call
mcp_call llm_call agent embed memory_store memory_search memory_delete human_review self_modify emit_event
send_signal query_instance wait_for_event blob_put blob_get
"""
BUILT_INS = frozenset(_BUILT_IN_WORDS.split())
"""The built-in handlers of the format (execution-semantics 5), whether this version has them or not."""


def lint(
    reading: Reading,
    *,
    handlers: Collection[str] | Mapping[str, Any] | None,
    external_handlers: Collection[str] = (),
) -> Iterator[Finding]:
    """All findings about what a reading has noted."""
    ids = _Ids(reading)
    yield from ids.faults()
    yield from _dependencies(reading, ids)
    yield from _handlers(reading, handlers, external_handlers)
    yield from _references(reading, ids)
    yield from _risky_texts(reading)
    yield from param_findings(reading, handlers if isinstance(handlers, Mapping) else {})
    for pointer, blocks in reading.lists:
        yield from _unreachable(blocks, pointer)


# --- ids -------------------------------------------------------------------------------------------


def _tree(pointer: str) -> str:
    """`blocks`, `on_failure` or `on_cancel`: each is a tree of its own."""
    return pointer.split("/", 2)[1]


class _Ids:
    """The ids of a document, by tree."""

    def __init__(self, reading: Reading) -> None:
        self._blocks = reading.block_ids
        self._saga = reading.saga_ids
        self.trees: dict[str, dict[str, Note]] = {"blocks": {}}
        for note in self._blocks:
            self.trees.setdefault(_tree(note.pointer), {}).setdefault(note.text, note)

    def producer(self, block_id: str, pointer: str) -> Note | None:
        """The block whose output a text at this place reads: of its own tree, or of the main one."""
        own = self.trees.get(_tree(pointer), {})
        return own.get(block_id) or self.trees["blocks"].get(block_id)

    def known(self, pointer: str) -> list[str]:
        """All ids whose outputs a text at this place may read."""
        return [*self.trees.get(_tree(pointer), ()), *self.trees["blocks"]]

    def faults(self) -> Iterator[Finding]:
        """Twice the same, out of reach, too many."""
        first: dict[tuple[str, str], Note] = {}
        saga = {note.pointer for note in self._saga}
        for note in [*self._blocks, *self._saga]:
            yield from _unfit(note)
            key = (_tree(note.pointer), unicodedata.normalize("NFC", note.text))
            other = first.setdefault(key, note)
            if other is not note:
                yield _duplicate(note, other, is_saga=bool(saga & {note.pointer, other.pointer}))
        n_ids = len({note.text for note in [*self._blocks, *self._saga]})
        if n_ids > MAX_BLOCKS:
            yield Finding("block.count", f"there are {n_ids} blocks; at most {MAX_BLOCKS} are possible", "/blocks")


def _duplicate(note: Note, other: Note, *, is_saga: bool) -> Finding:
    where = place_in_words(other.pointer.removesuffix("/id"))
    message = f"the id {shown(note.text)} is taken by {where}"
    if note.text != other.text:
        message = f"the id {shown(note.text)} looks like that of {where} ({shown(other.text)})"
    hint = "an id is unique in its tree"
    if is_saga:
        hint = "a saga's step and its action need different ids"
    return Finding("block.id_duplicate", message, note.pointer, block_id=note.text, suggestion=hint)


def _unfit(note: Note) -> Iterator[Finding]:
    text, code, message = note.text, "", ""
    if not text:
        return  # said where it was read
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in text.strip())
    if not text.strip():
        code, message = "block.id_blank", "the id is blank"
    elif "." in text:
        code, message = "block.id_dot", f"no path can reach a block whose id has a dot ({shown(text)})"
    elif control_character(text):
        code, message = "block.id_control", f"the id {shown(text)} holds {control_character(text)}"
    elif len(text) > MAX_ID_CHARACTERS:
        code, message = "block.id_long", f"an id has at most {MAX_ID_CHARACTERS} characters, not {len(text)}"
    elif text.startswith(_RESERVED):
        code, message = "block.id_reserved", f"ids like {shown(text)} are used by the engine itself"
    if code:
        hint = f"write {plain[:MAX_ID_CHARACTERS]!r}" if plain.strip("_") else None
        yield Finding(code, message, note.pointer, block_id=text, suggestion=hint, is_local=True)
    elif not _PLAIN_ID.fullmatch(text):
        message = f'an expression reaches the output of {shown(text)} only as outputs["…"]; a server not at all'
        hint = f"write {plain!r}" if _PLAIN_ID.fullmatch(plain) else "use letters, digits and _"
        yield Finding("block.id_style", message, note.pointer, block_id=text, suggestion=hint, is_warning=True)


def control_character(text: str) -> str:
    """The first character of a name that breaks lines or terminals, as U+000A; "" if there is none."""
    return next((f"U+{ord(c):04X}" for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), "")


def _dependencies(reading: Reading, ids: _Ids) -> Iterator[Finding]:
    """Ids in `compensation.depends_on` exist, and do not go round in a circle."""
    needs: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for pointer, step in reading.steps:
        compensation = step.get("compensation")
        wanted = compensation.get("depends_on") if isinstance(compensation, dict) else None
        block_id, tree = step.get("id"), _tree(pointer)
        if not isinstance(wanted, list) or not isinstance(block_id, str):
            continue
        where = f"{pointer}/compensation/depends_on"
        needs[tree, block_id] = (where, [text for text in wanted if isinstance(text, str)])
        for index, text in enumerate(wanted):
            if text == block_id:
                message = f"{shown(block_id)} depends on itself"
                yield Finding("compensation.itself", message, f"{where}/{index}", block_id=block_id)
            elif isinstance(text, str) and text not in ids.trees.get(tree, ()):
                near = difflib.get_close_matches(text, list(ids.trees.get(tree, ())), n=1)
                hint = f"did you mean {near[0]!r}?" if near else None
                message = f"there is no block {shown(text)} to depend on"
                yield Finding(
                    "compensation.unknown",
                    message,
                    f"{where}/{index}",
                    block_id=block_id,
                    suggestion=hint,
                    is_local=True,
                )
    by_tree: dict[str, dict[str, list[str]]] = {}
    for (tree, block_id), (_, wanted) in needs.items():
        by_tree.setdefault(tree, {})[block_id] = wanted
    for (tree, block_id), (where, wanted) in needs.items():
        if block_id not in wanted and _reaches(block_id, by_tree[tree]):
            message = f"{shown(block_id)} depends on itself, over others"
            yield Finding("compensation.cycle", message, where, block_id=block_id, is_local=True)


def _reaches(start: str, needs: Mapping[str, list[str]]) -> bool:
    """True if `start` is reached again from itself."""
    seen: set[str] = set()
    stack = [start]
    while stack:
        for following in needs.get(stack.pop(), ()):
            if following == start:
                return True
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return False


# --- handlers --------------------------------------------------------------------------------------


def _handlers(
    reading: Reading, handlers: Collection[str] | None, external_handlers: Collection[str]
) -> Iterator[Finding]:
    """A handler is known here, or somebody else is named who has it (product D14)."""
    for note in reading.handlers:
        name, where = note.text, note.pointer
        if name.startswith(_PLUGINS):
            message = f"{shown(name)} is a plug-in of an Orch8 server; there are none here"
            yield Finding("handler.plugin", message, where, block_id=note.block_id, is_local=True)
        elif handlers is None or name in handlers or name in external_handlers or note.is_queued:
            continue
        elif name in BUILT_INS:
            message = f"the handler {shown(name)} is not built in this version"
            hint = "run the document on an Orch8 server"
            yield Finding(
                "handler.not_built",
                message,
                where,
                block_id=note.block_id,
                suggestion=hint,
                is_warning=True,
            )
        else:
            near = difflib.get_close_matches(name, [*handlers, *external_handlers], n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`orch8-local handlers list` shows all"
            message = f"there is no handler {shown(name)}"
            yield Finding("handler.unknown", message, where, block_id=note.block_id, suggestion=hint, is_local=True)


# --- references ------------------------------------------------------------------------------------


def _references(reading: Reading, ids: _Ids) -> Iterator[Finding]:
    """`outputs.x` where no block has the id x, or where it cannot have run yet."""
    spoken = [(note, template.references(note.text), False) for note in reading.templates]
    spoken += [(note, expression.references(note.text), True) for note in reading.expressions]
    for note, paths, is_expression in spoken:
        for path in dict.fromkeys(path[:2] for path in paths):
            if path[0] not in ("outputs", "steps") or len(path) < 2:
                continue
            index = max(note.text.find(".".join(path)), 0)
            producer = ids.producer(path[1], note.pointer)
            if producer is None:
                near = difflib.get_close_matches(path[1], ids.known(note.pointer), n=1)
                hint = None
                if near:
                    needs_brackets = is_expression and not _PLAIN_ID.fullmatch(near[0])
                    key = f'["{near[0]}"]' if needs_brackets else f".{near[0]}"
                    hint = f"did you mean '{path[0]}{key}'?"
                message = f"'{'.'.join(path)}' is always null: there is no block {shown(path[1])}"
                yield Finding(
                    "reference.unknown",
                    message,
                    note.pointer,
                    block_id=note.block_id,
                    suggestion=hint,
                    index=index,
                    is_local=True,
                )
            elif _is_later(note, producer):
                message = f"'{'.'.join(path)}' is null here: block {shown(path[1])} comes later"
                yield Finding(
                    "reference.later",
                    message,
                    note.pointer,
                    block_id=note.block_id,
                    index=index,
                    is_warning=True,
                )


def _is_later(reader: Note, producer: Note) -> bool:
    """True if a block begins only after the one that reads it, and no loop brings it round again."""
    here, there = reader.pointer.split("/"), producer.pointer.removesuffix("/id").split("/")
    shared = 0
    while shared < min(len(here), len(there)) and here[shared] == there[shared]:
        shared += 1
    if shared == len(there) or here[1] != there[1] or "body" in here[:shared]:
        return False  # the reader is inside the producer, in another tree, or in a loop with it
    if here[shared - 1] in ("branches", "variants", "routes"):
        return False  # beside each other: which one runs, and when, is not decided by their order
    return here[shared].isdigit() and int(here[shared]) < int(there[shared])


def _risky_texts(reading: Reading) -> Iterator[Finding]:
    """Texts that are right, and do not do what they look like (S25, S27)."""
    for note in reading.templates:
        quoted = _QUOTED.search(note.text) if note.text.lstrip()[:1] in ("{", "[") else None
        if quoted is not None:
            message = "a quote or a line break in this value breaks the JSON around it"
            yield Finding(
                "template.quoted",
                message,
                note.pointer,
                block_id=note.block_id,
                suggestion="write {{ json(…) }} without the quotes",
                index=quoted.start(),
                is_warning=True,
            )
    for note in reading.expressions:
        names = {name for name, _ in expression.parse(note.text).calls} & _VOLATILE
        if note.pointer.endswith("/when") and names:
            message = f"{min(names)}() gives another value each time the step is looked at"
            yield Finding("expression.volatile", message, note.pointer, block_id=note.block_id, is_warning=True)


def _unreachable(blocks: list[Json], pointer: str) -> Iterator[Finding]:
    """A block after an unconditional `fail` never runs."""
    for index, (block, following) in enumerate(pairwise(blocks), 1):
        if isinstance(block, dict) and block.get("handler") == "fail" and block.get("when") is None:
            block_id = following.get("id") if isinstance(following, dict) else None
            yield Finding(
                "block.unreachable",
                "this block comes after a 'fail' and never runs",
                f"{pointer}/{index}",
                is_warning=True,
                block_id=block_id if isinstance(block_id, str) else None,
            )
            return
