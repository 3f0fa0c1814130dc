"""The handlers that come with the program, as one list. It imports no network code."""

from __future__ import annotations

from orch8_local.handlers.base import HandlerSpec
from orch8_local.handlers.command import COMMAND
from orch8_local.handlers.control import CONTROL
from orch8_local.handlers.http import HTTP_REQUEST
from orch8_local.handlers.state import STATE


def builtin_specs() -> list[HandlerSpec]:
    """Every built-in handler, sorted by name."""
    return sorted((*CONTROL, *STATE, HTTP_REQUEST, COMMAND), key=lambda spec: spec.name)
