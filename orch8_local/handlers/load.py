"""Finds handlers that users wrote: files in folders, modules, installed entry points.

Owns the import of code that is not ours. The easy mistake: going on without a file that does not
import; its steps would then be unknown handlers, far from the cause. Any such error refuses the
start and names the file, the line and the reason.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from orch8_local.errors import AlreadyExists, SettingsError
from orch8_local.handlers.base import HandlerSpec, Registry
from orch8_local.handlers.builtins import builtin_specs

logger = logging.getLogger("orch8_local")

ENTRY_POINT_GROUP = "orch8_local.handlers"


def load_registry(
    folders: Iterable[str | Path] = (), modules: Iterable[str] = (), *, with_entry_points: bool = True
) -> Registry:
    """All handlers: the built-ins, then those of folders, modules and entry points.

    folders: folders whose `*.py` are imported in order of name (those that begin with `_` are left
    out), or single files. modules: dotted names. Raises SettingsError for code that does not import,
    AlreadyExists for a name that is taken.
    """
    registry = Registry(builtin_specs())
    origins = {spec.name: "this program" for spec in registry.specs()}
    for origin, found in _sources(folders, modules, with_entry_points):
        specs = list(_specs_of(found))
        if not specs:
            logger.warning("%s holds no handler", origin, extra={"action": "no_handlers", "origin": origin})
        for spec in specs:
            _add(registry, spec, origin, origins)
    return registry


def _sources(
    folders: Iterable[str | Path], modules: Iterable[str], with_entry_points: bool
) -> Iterator[tuple[str, Any]]:
    for folder in folders:
        for path in _files_of(Path(folder)):
            yield str(path), _import_file(path)
    for name in modules:
        yield f"the module {name}", _import_module(name)
    if with_entry_points:
        yield from _entry_points()


def _add(registry: Registry, spec: HandlerSpec, origin: str, origins: dict[str, str]) -> None:
    if spec.name in origins:
        if registry.get(spec.name) is spec:
            return  # the same function, found by a second way
        raise AlreadyExists(
            f"{origin} declares the handler {spec.name!r}, which {origins[spec.name]} declares already",
            hint="rename one of them",
        )
    registry.add(spec)
    origins[spec.name] = origin


def _specs_of(found: Any) -> Iterator[HandlerSpec]:
    """The handlers of a module, of a list, or one function."""
    if isinstance(found, ModuleType):
        values: Iterable[Any] = list(vars(found).values())
    else:
        values = found if isinstance(found, (list, tuple)) else [found]
    for value in values:
        spec = getattr(value, "orch8_handler", None)
        if isinstance(spec, HandlerSpec):
            yield spec


# --- importing ------------------------------------------------------------------------------------


def _files_of(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise SettingsError(
            f"the handlers folder {str(folder)!r} does not exist",
            hint="create it, or change `handlers` in orch8-local.toml",
        )
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))


def module_name_of(path: Path) -> str:
    """A module name that no other file has: two folders may hold files of one name."""
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"orch8_handlers_{digest}_{path.stem}"


def _import_file(path: Path) -> ModuleType:
    name = module_name_of(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: annotations and dataclasses look their module up here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        del sys.modules[name]
        raise _cannot_import(str(path), error) from error
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _cannot_import(name, error) from error


def _entry_points() -> Iterator[tuple[str, Any]]:
    from importlib import metadata

    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        owner = f" of the package {point.dist.name}" if point.dist is not None else ""
        origin = f"the entry point {point.name}{owner}"
        try:
            found = point.load()
        except (Exception, SystemExit) as error:
            raise _cannot_import(origin, error) from error
        yield origin, found


def _cannot_import(origin: str, error: BaseException) -> SettingsError:
    """The error with the deepest place that lies in the file itself, else the deepest of all."""
    reason = " ".join(str(error).split()) or "no reason given"
    if isinstance(error, SyntaxError):
        place, reason = f"{error.filename or origin}:{error.lineno or 0}", error.msg or reason
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == origin]
        theirs = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
        last = (own or theirs)[-1:]
        place = f"{last[0].filename}:{last[0].lineno}" if last else origin
    return SettingsError(
        f"cannot load handlers: {place}: {type(error).__name__}: {reason}",
        hint="correct the file, or take it out of the handlers folder",
        details={"origin": origin, "place": place, "error": type(error).__name__},
    )
