"""The composition root: settings become a world, handlers, an engine or a link to a running one.

Owns who may write: `connect` takes the lease for what needs it, or attaches to the process that has
it (product D7). The easy mistake: loading users' handler files for a command that needs none; a
broken file must not stand in the way of a resolution.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orch8_local.attached import Attached
from orch8_local.engine.api import Command, EngineApi
from orch8_local.errors import NotFound, OwnedElsewhere, ReadOnly, SettingsError
from orch8_local.inbox import inbox_folder
from orch8_local.settings import SET_HOME_HINT, Settings
from orch8_local.store.lease import Owner, read_owner
from orch8_local.world import World, real_world

if TYPE_CHECKING:
    from orch8_local.engine.engine import Engine
    from orch8_local.engine.shared import EngineLimits
    from orch8_local.handlers.base import Context, HttpClient, Registry
    from orch8_local.sequence.document import SequenceDefinition

Json = Any
Say = Callable[[str], None]


class Need(StrEnum):
    """What a caller wants to do.

    READ: look. CHANGE: submit a command; with no owner alive the lease is taken for that moment.
    START: the same for a start, which may make the database and needs the handlers. OWN: be the
    engine, or OwnedElsewhere. RUN: be the engine, or attach to the one that runs.
    """

    READ = "read"
    CHANGE = "change"
    START = "start"
    OWN = "own"
    RUN = "run"


def _silent(_: str) -> None:
    """Say nothing."""


@asynccontextmanager
async def connect(
    settings: Settings, *, need: Need, world: World | None = None, say: Say = _silent
) -> AsyncIterator[EngineApi]:
    """One engine for the time of a `with`: this process's own, or a link to the owner's.

    An own engine is opened (boot sweep done) but not started. Raises NotFound if there is nothing to
    read, OwnedElsewhere if another process owns what this one must own, and errors of the store.
    """
    world = world or real_world()
    api = await _connected(settings, need, world, say)
    try:
        yield api
    finally:
        await api.close()


async def _connected(settings: Settings, need: Need, world: World, say: Say) -> EngineApi:
    if need is Need.READ:
        return await _attach(settings, world, take_over=None)
    if need is Need.CHANGE:
        must_exist(settings)
    for _ in range(20):
        try:
            if need is not Need.OWN and find_owner(settings) is not None:
                return await _attach(settings, world, take_over=_taking_over(settings, world, say))
            return await open_own(settings, world=world, has_handlers=need is not Need.CHANGE)
        except OwnedElsewhere:
            if need is Need.OWN:
                raise
        except NotFound:
            if find_owner(settings) is None:
                raise
        await asyncio.sleep(0.05)  # an owner that is just coming or going, or making the database
    return await open_own(settings, world=world, has_handlers=need is not Need.CHANGE)


def find_owner(settings: Settings) -> Owner | None:
    """The living process that owns the database, if any."""
    return read_owner(settings.database)


def must_exist(settings: Settings) -> None:
    """Raise NotFound unless the database file is there."""
    if not settings.database.exists():
        raise NotFound(
            f"there is no database at {settings.database}",
            hint="`orch8-local run hello` makes one; --db or ORCH8_LOCAL_DB names another",
        )


async def _attach(settings: Settings, world: World, *, take_over: Any) -> Attached:
    from orch8_local.store.database import open_readonly_views

    must_exist(settings)
    views = await open_readonly_views(settings.database)
    return Attached(
        views,
        inbox=inbox_folder(settings.database),
        world=world,
        is_alive=lambda: find_owner(settings) is not None,
        take_over=take_over,
    )


def _taking_over(settings: Settings, world: World, say: Say) -> Callable[[Command], Any]:
    async def take_over(command: Command) -> None:
        engine = await open_own(settings, world=world, has_handlers=command.kind == "start")
        say("the owner of the database went away; its inbox is worked off here")
        try:
            await engine.take_commands()
        finally:
            await engine.close()

    return take_over


async def open_own(settings: Settings, *, world: World, has_handlers: bool = True) -> Engine:
    """Take the lease and open the engine, unstarted; OwnedElsewhere if another process has it."""
    from orch8_local.engine.engine import Engine

    registry = build_registry(settings) if has_handlers else builtin_registry()
    make_database_folder(settings)
    return await Engine.open(
        settings.database,
        registry=registry,
        limits=engine_limits(settings),
        world=world,
        open_http=_guarded_http(settings) if settings.http_hosts else None,
    )


def _guarded_http(settings: Settings) -> Callable[[Context], HttpClient]:
    """The guarded client with the operator's hosts, loaded when the first handler asks for it."""

    def open_http(context: Context) -> HttpClient:
        from orch8_local.handlers.egress import Egress, EgressPolicy

        return Egress(EgressPolicy(hosts=frozenset(settings.http_hosts))).open(context)

    return open_http


def engine_limits(settings: Settings) -> EngineLimits:
    """The limits of the settings, as the engine takes them."""
    from orch8_local.engine.shared import EngineLimits

    limits = settings.limits
    return EngineLimits(
        max_concurrent=limits.max_concurrent,
        grace_s=limits.grace_s,
        settle_s=limits.settle_s,
        max_recoveries=limits.max_recoveries,
    )


def builtin_registry() -> Registry:
    """The handlers that ship with the program."""
    from orch8_local.handlers.load import load_registry

    return load_registry(with_entry_points=False)


def build_registry(settings: Settings) -> Registry:
    """The built-in handlers, those of the settings' folders and modules, and of entry points.

    Raises SettingsError, naming file and line, for code that does not import.
    """
    from orch8_local.handlers.load import load_registry

    folders = [entry for entry in settings.handlers if Path(entry).is_absolute()]
    modules = [entry for entry in settings.handlers if not Path(entry).is_absolute()]
    if modules and settings.project_folder is not None:
        folder = str(settings.project_folder)
        if folder not in sys.path:
            sys.path.insert(0, folder)
    return load_registry(folders, modules)


def unbuilt_parts(definition: SequenceDefinition) -> list[str]:
    """What of a valid document a start in this version refuses, by name."""
    from orch8_local.engine.built import unbuilt

    return list(unbuilt(definition))


def make_database_folder(settings: Settings) -> None:
    """Make the folder of the database, for its owner alone; an error says how to choose another."""
    folder = settings.database.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder {folder} cannot be made: {error.strerror}"
        if settings.source_of("db") == "default":
            raise SettingsError(what, hint=SET_HOME_HINT) from error
        raise ReadOnly(what, hint="name another database with --db") from error
