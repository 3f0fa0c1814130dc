"""The handlers of a run's own key-value state: set_state, get_state, delete_state, merge_state.

They write nothing themselves: the changes they return are committed with the step's end, so a crash
or a retry can neither lose nor repeat them. The easy mistake: a key in one of the prefixes that the
program uses for itself; the reference lets it through, here it fails the step.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from orch8_local.handlers.base import Context, HandlerSpec
from orch8_local.handlers.params import Params, scalar_text
from orch8_local.model.outcome import DeleteState, Mode, Outcome, SetState

Json = Any

RESERVED_PREFIXES = ("__mem__:", "__agent__:", "_cache:")
MAX_KEY_BYTES = 1024


def checked_key(key: str) -> str:
    """The key itself, or ValueError if a run may not use it."""
    if not key:
        raise ValueError("the key is empty")
    if len(key.encode("utf-8")) > MAX_KEY_BYTES:
        raise ValueError(f"the key has more than {MAX_KEY_BYTES} bytes")
    for prefix in RESERVED_PREFIXES:
        if key.startswith(prefix):
            raise ValueError(f"keys that begin with {prefix!r} are the program's own; use another name")
    return key


StateKey = Annotated[str, BeforeValidator(scalar_text), AfterValidator(checked_key)]


class KeyParams(Params):
    """The params of `get_state` and `delete_state`."""

    key: StateKey = Field(description="The name of the entry.")


class SetParams(Params):
    """The params of `set_state`."""

    key: StateKey = Field(description="The name of the entry.")
    value: Json = Field(None, description="Any value; replaces the one before.")


class MergeParams(Params):
    """The params of `merge_state`."""

    values: dict[StateKey, Json] = Field(description="Entries to set, all of them or none.")


async def set_state(_ctx: Context, params: SetParams) -> Outcome:
    """Set one entry of the run's state."""
    changes = (SetState(params.key, params.value),)
    return Outcome.ok({"key": params.key, "value": params.value}, changes=changes)


async def get_state(ctx: Context, params: KeyParams) -> Outcome:
    """Read one entry of the run's state; null if there is none."""
    return Outcome.ok({"key": params.key, "value": ctx.state.get(params.key)})


async def delete_state(_ctx: Context, params: KeyParams) -> Outcome:
    """Remove one entry of the run's state, also if there is none."""
    return Outcome.ok({"key": params.key, "deleted": True}, changes=(DeleteState(params.key),))


async def merge_state(_ctx: Context, params: MergeParams) -> Outcome:
    """Set several entries of the run's state together."""
    changes = tuple(SetState(key, value) for key, value in params.values.items())
    return Outcome.ok({"merged_keys": list(params.values)}, changes=changes)


def _pure(name: str, call: Any, params: type[Params]) -> HandlerSpec:
    summary = (call.__doc__ or "").split("\n", 1)[0]
    return HandlerSpec(name, call, kind=None, mode=Mode.NONE, params=params, is_builtin=True, summary=summary)


STATE = (
    _pure("set_state", set_state, SetParams),
    _pure("get_state", get_state, KeyParams),
    _pure("delete_state", delete_state, KeyParams),
    _pure("merge_state", merge_state, MergeParams),
)
