"""The Python API of product section 6: sequences to add, runs to start and to wait for.

Thin: every call is a command or a read that a face could make as well. The easy mistake: taking a
blocked run for a failed one; `Run.result` raises EffectBlocked for it, which names the effects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from orch8_local.engine.api import Command
from orch8_local.errors import EffectBlocked, RunFailed
from orch8_local.model.records import Instance
from orch8_local.model.states import InstanceState

if TYPE_CHECKING:
    from orch8_local.engine.engine import Engine

Json = Any
NewToken = Callable[[], str]
RESULTS = ("result", "error", "gate", "marker")


class Opening:
    """What `Engine.open` gives: await it for an engine that waits, or `async with` it for one that works."""

    def __init__(self, opening: Coroutine[Any, Any, Engine]) -> None:
        self._opening = opening
        self._engine: Engine | None = None

    def __await__(self) -> Generator[Any, None, Engine]:
        return self._opening.__await__()

    async def __aenter__(self) -> Engine:
        self._engine = await self._opening
        return await self._engine.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._engine is not None
        await self._engine.__aexit__(kind, error, trace)


class Sequences:
    """The documents in the database."""

    def __init__(self, engine: Engine, token: NewToken) -> None:
        self._engine = engine
        self._token = token

    async def add(self, source: str | Path | Mapping[str, Json], *, strict: bool = False) -> str:
        """Store a document, from a file or as an object, and return its name.

        strict: refuse another content under a name and version that is there. Raises SequenceInvalid
        with every problem, OSError for a file that cannot be read.
        """
        if isinstance(source, Mapping):
            text, name = json.dumps(source), "document"
        else:
            text, name = await asyncio.to_thread(Path(source).read_text, "utf-8"), str(source)
        arguments = {"document": text, "source": name, "strict": strict}
        result = await self._engine.submit(Command(self._token(), "add_sequence", arguments))
        return str(result["name"])


class Runs:
    """Runs to start."""

    def __init__(self, engine: Engine, token: NewToken) -> None:
        self._engine = engine
        self._token = token

    async def start(
        self, name: str, *, version: int | None = None, data: Json = None, config: Json = None, key: str | None = None
    ) -> Run:
        """Start a sequence that was added; it is on the disk when this returns.

        key: a second start with it and the same content gives the run of the first. Raises NotFound,
        NotBuilt, InputError for data that the `input_schema` refuses, ContentConflict for another content.
        """
        arguments = {"name": name, "version": version, "data": data, "config": config, "key": key}
        result = await self._engine.submit(Command(self._token(), "start", arguments))
        return Run(self._engine, str(result["instance_id"]))


@dataclass(frozen=True, slots=True)
class Run:
    """One run, by its id."""

    _engine: Engine
    id: str

    async def stopped(self) -> Instance:
        """Wait until the run has ended, is blocked or parked, and return it as it then stands."""
        return await self._engine.wait_until_stopped(self.id)

    async def result(self) -> dict[str, Json]:
        """Wait, and return the latest output of every block.

        Raises EffectBlocked if an outcome is unknown, RunFailed if the run ended any other way than completed.
        """
        instance = await self.stopped()
        if instance.is_blocked and instance.failure is not None:
            raise EffectBlocked(instance.failure.effect_ids, f"run {self.id} is blocked: {instance.failure.message}")
        if instance.state is not InstanceState.COMPLETED:
            why = instance.failure.message if instance.failure is not None else instance.paused_reason or ""
            raise RunFailed(
                f"run {self.id} is {instance.state}{': ' + why if why else ''}", details={"instance_id": self.id}
            )
        view = await self._engine.views.instance(self.id)
        rows = sorted((row for row in view.outputs if row.kind in RESULTS), key=lambda row: row.seq)
        return {row.block_id: row.output for row in rows}
