"""What a template or an expression can see. Pure; imports nothing of the project.

`Scope` is read only: neither language can change a value in it. The clock and the randomness an
expression may ask for come in as functions, so that an evaluation can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict. Nothing else ever enters a scope."""


def _no_clock() -> int:
    raise AssertionError("this scope has no clock")


def _no_random() -> float:
    raise AssertionError("this scope has no randomness")


@dataclass(frozen=True, slots=True)
class Scope:
    """The sections of section 6: data and config of the context, runtime, outputs, state.

    now_us: UTC in microseconds since 1970. random: a float in [0, 1).
    """

    data: Json = None
    config: Json = None
    runtime: Mapping[str, Json] = field(default_factory=dict)
    outputs: Mapping[str, Json] = field(default_factory=dict)
    state: Mapping[str, Json] = field(default_factory=dict)
    instance_id: str = ""
    now_us: Callable[[], int] = _no_clock
    random: Callable[[], float] = _no_random
