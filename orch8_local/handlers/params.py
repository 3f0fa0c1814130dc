"""What the params of the built-in handlers have in common.

Owns the base model. The easy mistake: a silent default for a param of the wrong type or name, which
is what the reference does; here both fail the step before anything is sent (execution-semantics 5).
Models are built at first use, so that listing the handlers costs nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

Json = Any


class Params(BaseModel):
    """Base of all params: no unknown names, no change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def scalar_text(value: Json) -> str:
    """A string as it is; a number or boolean as JSON writes it. Raises ValueError for all else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    kind = {type(None): "null", list: "a list", dict: "an object"}.get(type(value), type(value).__name__)
    raise ValueError(f"has to be text, a number or a boolean, not {kind}")


ScalarText = Annotated[str, BeforeValidator(scalar_text)]
"""Text that may be written as a number or a boolean, since a template keeps the type of its value."""
