"""Small documents for the tests of this folder, and how a place in one is marked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orch8_local.errors import Problem
from orch8_local.sequence.document import inspect

MARK = "@@"
STRUCTURE = ("json.comma", "json.comment")
"""Faults between values: their place is a line and a column, but no value's."""
DATA = Path(__file__).parent / "data"
VECTORS = Path(__file__).parent.parent / "pure" / "data" / "sequence-format-vectors.json"


def step(block_id: str = "a", **fields: Any) -> dict[str, Any]:
    """A step that does nothing."""
    return {"type": "step", "id": block_id, "handler": "noop", **fields}


def document(*blocks: Any, **fields: Any) -> dict[str, Any]:
    """A document of these blocks."""
    return {"name": "v", "blocks": list(blocks or [step()]), **fields}


def text_of(*blocks: Any, **fields: Any) -> str:
    """The same as JSON text."""
    return json.dumps(document(*blocks, **fields), ensure_ascii=False)


def problems(text: str | bytes, **options: Any) -> list[Problem]:
    """All that is said about a text."""
    return list(inspect(text, **options).problems)


def codes(text: str | bytes, **options: Any) -> list[str]:
    """The codes of all that is said about a text, in order."""
    return [problem.code for problem in problems(text, **options)]


@dataclass(frozen=True)
class Bad:
    """A document with a mark where its one problem stands. pointer, code, hint: what is said of it.

    hint: part of the suggestion, None if there is none.
    """

    text: str
    code: str
    pointer: str
    hint: str | None = None
    severity: str = "error"

    @property
    def place(self) -> tuple[int, int]:
        """Line and column of the mark."""
        before = self.text.split(MARK)[0]
        return before.count("\n") + 1, len(before) - before.rfind("\n")

    @property
    def unmarked(self) -> str:
        """The document itself."""
        return self.text.replace(MARK, "", 1)


def in_step(fields: str, code: str, pointer: str, hint: str | None = None, severity: str = "error") -> Bad:
    """A step with these members, as text with a mark; pointer: below the step."""
    text = f'{{"name": "v",\n "blocks": [\n  {{"type": "step", "id": "a", "handler": "noop",\n   {fields}}}]}}'
    return Bad(text, code, "" if code in STRUCTURE else f"/blocks/0{pointer}", hint, severity)


def in_block(fields: str, code: str, pointer: str, hint: str | None = None, severity: str = "error") -> Bad:
    """A block with these members; NOOP stands for a block that does nothing."""
    noop = '{"type": "step", "id": "inner", "handler": "noop"}'
    text = f'{{"name": "v", "blocks": [\n{{"id": "b", {fields}}}]}}'.replace("NOOP", noop)
    return Bad(text, code, f"/blocks/0{pointer}", hint, severity)


def in_document(fields: str, code: str, pointer: str, hint: str | None = None, severity: str = "error") -> Bad:
    """A document with these members beside a block that does nothing."""
    noop = '{"type": "step", "id": "a", "handler": "noop"}'
    return Bad(f'{{{fields},\n"blocks": [{noop}]}}', code, pointer, hint, severity)
