"""Workflows for one machine that never send twice without knowing.

The public names, resolved when first used (PEP 562), so that `import orch8_local` and
`orch8-local --version` load none of pydantic, httpx, asyncio or textual.

    from orch8_local import handler, Engine, Refused, Rejected

The easy mistake: importing something here for convenience; a test lists what may be loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from orch8_local.engine.api import Command as Command
    from orch8_local.engine.engine import Engine as Engine
    from orch8_local.engine.shared import EngineLimits as EngineLimits
    from orch8_local.errors import Conflict as Conflict
    from orch8_local.errors import EffectBlocked as EffectBlocked
    from orch8_local.errors import EffectError as EffectError
    from orch8_local.errors import InputError as InputError
    from orch8_local.errors import NotFound as NotFound
    from orch8_local.errors import Orch8Error as Orch8Error
    from orch8_local.errors import OwnedElsewhere as OwnedElsewhere
    from orch8_local.errors import RunFailed as RunFailed
    from orch8_local.errors import SequenceInvalid as SequenceInvalid
    from orch8_local.errors import StoreError as StoreError
    from orch8_local.handlers.base import Context as Context
    from orch8_local.handlers.base import Refused as Refused
    from orch8_local.handlers.base import Rejected as Rejected
    from orch8_local.handlers.base import handler as handler
    from orch8_local.model.outcome import Outcome as Outcome
    from orch8_local.model.records import Instance as Instance
    from orch8_local.model.records import Receipt as Receipt

_HOMES = {
    "orch8_local.engine.api": ("Command",),
    "orch8_local.engine.engine": ("Engine",),
    "orch8_local.engine.shared": ("EngineLimits",),
    "orch8_local.errors": (
        "Conflict",
        "EffectBlocked",
        "EffectError",
        "InputError",
        "NotFound",
        "Orch8Error",
        "OwnedElsewhere",
        "RunFailed",
        "SequenceInvalid",
        "StoreError",
    ),
    "orch8_local.handlers.base": ("Context", "Refused", "Rejected", "handler"),
    "orch8_local.model.outcome": ("Outcome",),
    "orch8_local.model.records": ("Instance", "Receipt"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604, RUF100 - the names are those of the table
    "__version__",
    *sorted(_HOME_OF),
]


def __getattr__(name: str) -> Any:
    """Load the module that owns a public name, once."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
