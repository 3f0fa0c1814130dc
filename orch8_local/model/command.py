"""A change that somebody asks the engine for, as a value. Pure.

It travels from a face to the engine, through memory or through a file in the inbox. The easy
mistake: giving a second request the id of the first; a command is applied once per id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Any


@dataclass(frozen=True, slots=True)
class Command:
    """One change that somebody asks for; applied whole in one transaction, once per id.

    kinds and arguments:
      start         {"document": text | null, "name": str | null, "version": int | null, "source": str,
                     "data": json, "config": json, "key": str | null, "priority": int}
                    -> {"instance_id", "is_replayed": bool}
      add_sequence  {"document": text, "source": str, "strict": bool}
                    -> {"name", "version", "sha256", "is_new"}
      cancel        {"instance_id", "reason"} -> {"instance_id", "state"}
      retry         {"instance_id"} -> {"instance_id", "state"}
      resolve       {"effect_id", "target": committed|verified|abandoned|compensated, "evidence": {...},
                     "provider_receipt_id": str | null, "output": json, "has_output": bool,
                     "then": resume|retry|stay, "version": int | null}
                    -> {"effect_id", "state", "instance_id", "instance_state"}
    """

    id: str
    kind: str
    arguments: Mapping[str, Json]
    actor: str = "operator"
