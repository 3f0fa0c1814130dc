"""What of a document this version can run. Pure.

The format is read whole, but a part whose behaviour is not built is refused at start, by name: a
step that silently ignores its `delay` sends too early. The easy mistake: letting something through
because it "usually" does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orch8_local.blocks.base import behaviour_of, built_types
from orch8_local.blocks.step import Step
from orch8_local.errors import NotBuilt, NotFound
from orch8_local.handlers.base import Registry
from orch8_local.sequence.document import SequenceDefinition

STEP_FIELDS = (
    "delay",
    "send_window",
    "rate_limit_key",
    "wait_for_input",
    "deadline",
    "on_deadline_breach",
    "fallback_handler",
    "cache_key",
    "context_access",
    "output_schema",
    "queue_name",
    "compensation",
)
EFFECT_FIELDS = ("key_ttl", "verify", "unique_key", "settle", "outcomes")
DOCUMENT_FIELDS = ("on_failure", "on_cancel", "interceptors", "sla")
MODES = (None, "at_most_once", "repeatable")


def check_built(definition: SequenceDefinition, registry: Registry) -> None:
    """Raise NotBuilt with everything that cannot run yet, or NotFound for a handler nobody provides."""
    missing = list(unbuilt(definition))
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise NotBuilt(
            f"{missing[0]} is not built in this version{more}",
            hint="the document is valid; take that part out, or run it on an Orch8 server",
            details={"missing": missing},
        )
    for block, _, _ in definition.walk():
        if isinstance(block, Step):
            try:
                registry.get(block.handler)
            except NotFound as error:
                raise NotFound(f"step {block.id!r}: {error.message}", hint=error.hint) from None


def unbuilt(definition: SequenceDefinition) -> Iterator[str]:
    """Every part of a document that cannot run yet, by name."""
    for name in DOCUMENT_FIELDS:
        if getattr(definition, name, None):
            yield f"the document's {name!r}"
    for block, _, _ in definition.walk():
        if behaviour_of(block.type) is None:
            yield f"block {block.id!r}: the type {block.type!r} (built: {', '.join(built_types())})"
        elif block.type == "step":
            yield from _missing_of_step(block)


def _missing_of_step(block: Any) -> Iterator[str]:
    for name in STEP_FIELDS:
        if getattr(block, name, None) is not None:
            yield f"step {block.id!r}: the field {name!r}"
    if block.cancellable is False:
        yield f"step {block.id!r}: 'cancellable: false'"
    effect = block.effect
    if effect is None:
        return
    if effect.mode not in MODES:
        yield f"step {block.id!r}: the effect mode {str(effect.mode)!r}"
    for name in EFFECT_FIELDS:
        if getattr(effect, name, None) is not None:
            yield f"step {block.id!r}: the field 'effect.{name}'"
