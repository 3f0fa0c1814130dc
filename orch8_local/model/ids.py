"""Derived ids, canonical JSON and hashes (effect-receipts section 3). Pure.

Owns every byte layout. The easy mistake: hashing something that a restart can change (a clock, a
rotated token). Ids are functions of the run, the position and the attempt, and of nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

EFFECT_DOMAIN = b"orch8-effect-v1\0"
SCOPED_EFFECT_DOMAIN = b"orch8-local-effect-v2\0"
INTENT_DOMAIN = b"orch8-local-intent-v1\0"
CONTINUITY_DOMAIN = b"orch8-effect-scope-v1\0"
RUNTIME_DOMAIN = b"orch8-effect-runtime-v1\0"
DESTINATION_KEYS = ("url", "provider", "model", "topic", "queue", "resource", "endpoint")

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def canonical_json(value: Any) -> str:
    """Canonical text of a JSON value (3.5): sorted keys, no white space, raw UTF-8.

    Floats print as Python's `repr`, so an integral one keeps its `.0`. Raises ValueError for NaN,
    infinities, lone surrogates, non-text keys and anything that is not JSON.
    """
    text = _ENCODER.encode(value)
    text.encode("utf-8")  # a lone surrogate has no bytes, hence no hash: UnicodeEncodeError is a ValueError
    return text


def sha256_hex(text: str | bytes) -> str:
    """Lower-case hex SHA-256 of UTF-8 text or bytes."""
    return hashlib.sha256(text.encode("utf-8") if isinstance(text, str) else text).hexdigest()


def derived_uuid(digest: bytes) -> str:
    """The first 16 bytes of a digest as a version 8 UUID (3.1)."""
    raw = bytearray(digest[:16])
    raw[6] = (raw[6] & 0x0F) | 0x80
    raw[8] = (raw[8] & 0x3F) | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _uuid_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


@lru_cache(maxsize=1024)
def continuity_id(instance_id: str) -> str:
    """The ledger scope of an ordinary run (3.2)."""
    return derived_uuid(hashlib.sha256(CONTINUITY_DOMAIN + _uuid_bytes(instance_id)).digest())


def runtime_id(instance_id: str) -> str:
    """The runtime of an ordinary run (3.2)."""
    return derived_uuid(hashlib.sha256(RUNTIME_DOMAIN + _uuid_bytes(instance_id)).digest())


ScopePath = tuple[tuple[str, int], ...]
"""One (block id, iteration index) per enclosing loop, outermost first; () outside loops (3.4)."""


def scope_text(scope: ScopePath) -> str:
    """Readable form for tables and logs: `outer#2/inner#0`, with `%`, `#` and `/` in ids escaped."""
    return "/".join(f"{_escape(block_id)}#{index}" for block_id, index in scope)


def parse_scope(text: str) -> ScopePath:
    """The inverse of `scope_text`."""
    return tuple(_scope_parts(text)) if text else ()


def _scope_parts(text: str) -> Iterator[tuple[str, int]]:
    for part in text.split("/"):
        block_id, _, index = part.rpartition("#")
        yield block_id.replace("%2F", "/").replace("%23", "#").replace("%25", "%"), int(index)


def _escape(block_id: str) -> str:
    return block_id.replace("%", "%25").replace("#", "%23").replace("/", "%2F")


def _counted(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def scope_bytes(scope: ScopePath) -> bytes:
    """The byte form that goes into ids (3.4)."""
    return b"".join(_counted(block_id.encode()) + index.to_bytes(4, "big") for block_id, index in scope)


def intent_id(instance_id: str, scope: ScopePath, block_id: str, rerun: int = 0) -> str:
    """The business action, shared by all attempts of one step in one loop position (3.4)."""
    preimage = (
        INTENT_DOMAIN
        + _uuid_bytes(instance_id)
        + _counted(scope_bytes(scope))
        + _counted(block_id.encode())
        + rerun.to_bytes(4, "big")
    )
    return derived_uuid(hashlib.sha256(preimage).digest())


def effect_id(
    continuity: str,
    epoch: int,
    instance_id: str,
    block_id: str,
    attempt: int,
    *,
    scope: ScopePath = (),
    rerun: int = 0,
) -> str:
    """One attempt of one intent: the formula of 3.3, or of 3.4 inside a loop or a re-run."""
    head = _uuid_bytes(continuity) + epoch.to_bytes(8, "big") + _uuid_bytes(instance_id)
    tail = attempt.to_bytes(4, "big")
    if not scope and rerun == 0:
        preimage = EFFECT_DOMAIN + head + block_id.encode() + tail
    else:
        place = _counted(scope_bytes(scope)) + _counted(block_id.encode())
        preimage = SCOPED_EFFECT_DOMAIN + head + place + rerun.to_bytes(4, "big") + tail
    return derived_uuid(hashlib.sha256(preimage).digest())


def request_sha256(handler: str, params: Any) -> str:
    """Hash of what is to be sent, before secrets are put in (3.5)."""
    return sha256_hex(canonical_json({"handler": handler, "params": params}))


def destination_fingerprint(handler: str, params: Any) -> str:
    """Hash of where it goes (3.6)."""
    fields = params if isinstance(params, dict) else {}
    chosen = {key: fields[key] for key in DESTINATION_KEYS if key in fields}
    return sha256_hex(canonical_json({"destination": chosen, "handler": handler}))


def invariant_dedupe_key(invariant_id: str, continuity: str, epoch: int, evidence: list[str]) -> str:
    """The key under which an invariant's result is stored once (9.4)."""
    return sha256_hex(f"{invariant_id}:{continuity}:{epoch}:{':'.join(evidence)}")


def json_fault(value: Any, path: str = "$") -> str | None:
    """Why a value is not JSON, with the place as `$.a[0]`, or None if it is.

    Finds NaN, infinities, lone surrogates, non-text keys, foreign types and nesting beyond 200.
    """
    stack: list[tuple[Any, str, int]] = [(value, path, 0)]
    while stack:
        item, place, depth = stack.pop()
        if depth > 200:
            return f"{place} is nested more than 200 levels deep"
        if item is None or isinstance(item, (bool, int)):
            continue
        fault = _scalar_fault(item, place)
        if fault is not None:
            return fault
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    return f"{place} has the key {key!r}, which is not text"
                if _scalar_fault(key, place):
                    return f"{place} has a key that is not valid Unicode"
                stack.append((item[key], f"{place}.{key}", depth + 1))
        elif isinstance(item, (list, tuple)):
            stack.extend((child, f"{place}[{index}]", depth + 1) for index, child in enumerate(item))
    return None


def _scalar_fault(item: Any, place: str) -> str | None:
    if isinstance(item, float):
        return None if math.isfinite(item) else f"{place} is {item}, which JSON cannot hold"
    if isinstance(item, str):
        try:
            item.encode("utf-8")
        except UnicodeEncodeError:
            return f"{place} holds a lone surrogate, which is not valid Unicode"
        return None
    if isinstance(item, (dict, list, tuple)):
        return None
    return f"{place} is a {type(item).__name__}, which JSON cannot hold"
