"""Settings: where each comes from, read once, frozen. Imports errors only.

A flag wins over the environment (`ORCH8_LOCAL_<KEY>`), which wins over the file, which wins over
the default. The file is the nearest `orch8-local.toml` upwards from the working folder, else the one
in the user's config folder. Relative paths in a file count from its folder. The easy mistake:
falling back to a relative folder when there is no home; the next call from another folder would
then find nothing, so that is an error here (product section 5).
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orch8_local.errors import SettingsError

Json = Any

FILE_NAME = "orch8-local.toml"
APP_NAME = "orch8-local"
DATABASE_NAME = "orch8.db"
ENVIRONMENT_PREFIX = "ORCH8_LOCAL_"
HOME_VARIABLE = "ORCH8_LOCAL_HOME"
SET_HOME_HINT = f"set {HOME_VARIABLE} to a folder that is there, or name the database with --db"
OPEN_SECTIONS = ("notify", "ui", "server")
"""Sections of parts that read their own keys."""

_NOT_SETTINGS = re.compile(r"ORCH8_LOCAL_(HOME|CRASH|SECRET_.*)")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class Key:
    """What one setting may hold. kind: path, folders, names, hosts, whole, seconds."""

    name: str
    kind: str
    lowest: float = 0
    highest: float = 0

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()


KEYS = {
    key.name: key
    for key in (
        Key("db", "path"),
        Key("sequences", "folders"),
        Key("handlers", "folders"),
        Key("external_handlers", "names"),
        Key("limits.max_concurrent", "whole", 1, 10_000),
        Key("limits.grace_s", "seconds", 0, 3600),
        Key("limits.settle_s", "seconds", 0, 86_400),
        Key("limits.max_recoveries", "whole", 0, 1000),
        Key("http.hosts", "names"),
    )
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the engine does at once and how long it waits.

    max_concurrent: runs executed at the same time. grace_s: for running steps when told to stop.
    settle_s: how long a cut-off dispatch is still listened to. max_recoveries: how often a run may
    take the process down before it is parked.
    """

    max_concurrent: int = 200
    grace_s: float = 10.0
    settle_s: float = 60.0
    max_recoveries: int = 3


@dataclass(frozen=True, slots=True)
class Value:
    """One setting as it holds, and where it comes from: a flag, a variable, a file, `default`."""

    key: str
    value: Json
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process.

    database: absolute path. sequence_folders: absolute. handlers: absolute paths of folders or files,
    and names of modules. sections: the open sections as they stand in the file.
    """

    database: Path
    sequence_folders: tuple[Path, ...]
    handlers: tuple[str, ...]
    external_handlers: tuple[str, ...]
    limits: Limits
    http_hosts: tuple[str, ...]
    sections: Mapping[str, Json]
    project_folder: Path | None
    file: Path | None
    values: tuple[Value, ...]

    def source_of(self, key: str) -> str:
        """Where a setting comes from."""
        return next(value.source for value in self.values if value.key == key)


def load_settings(*, database: str | None = None, folder: Path | None = None) -> Settings:
    """Read all settings for a process that works in `folder` (default: the working folder).

    Raises SettingsError that names the setting, the place and the way out.
    """
    here = folder if folder is not None else _working_folder()
    project_file = _project_file(here)
    file = project_file or _user_file()
    document = _read_file(file) if file is not None else {}
    flags = {} if database is None else {"db": database}
    values = {value.key: value for value in _values(document, file, here, flags)}
    project_folder = project_file.parent if project_file is not None else None
    if "db" not in values:
        values["db"] = Value("db", _default_database(project_folder), "default")
    for name, default in _defaults().items():
        values.setdefault(name, Value(name, default, "default"))
    return _settings(values, document, project_folder, file)


def _settings(
    values: Mapping[str, Value], document: Mapping[str, Json], project_folder: Path | None, file: Path | None
) -> Settings:
    return Settings(
        database=Path(values["db"].value),
        sequence_folders=tuple(Path(text) for text in values["sequences"].value),
        handlers=tuple(values["handlers"].value),
        external_handlers=tuple(values["external_handlers"].value),
        limits=Limits(**{n.partition(".")[2]: v.value for n, v in values.items() if n.startswith("limits.")}),
        http_hosts=tuple(values["http.hosts"].value),
        sections={name: document[name] for name in OPEN_SECTIONS if name in document},
        project_folder=project_folder,
        file=file,
        values=tuple(values[name] for name in KEYS),
    )


def _defaults() -> dict[str, Json]:
    limits = Limits()
    lists: dict[str, Json] = {
        name: [] for name in ("sequences", "handlers", "external_handlers", "http.hosts")
    }
    names = [name for name in KEYS if name.startswith("limits.")]
    return lists | {name: getattr(limits, name.partition(".")[2]) for name in names}


def _values(
    document: Mapping[str, Json], file: Path | None, here: Path | None, flags: Mapping[str, str]
) -> Iterator[Value]:
    """Every setting that is given, weakest first."""
    if file is not None:
        for name, given in _flat(document, file):
            yield Value(name, _checked(KEYS[name], given, file.parent, f"{file}: {name}"), str(file))
    for variable, text in sorted(os.environ.items()):
        key = _key_of_variable(variable)
        if key is not None:
            value = _checked(key, _from_text(key, text), here, variable)
            yield Value(key.name, value, f"environment {variable}")
    for name, text in flags.items():
        yield Value(name, _checked(KEYS[name], text, here, f"--{name}"), f"--{name}")


def _flat(document: Mapping[str, Json], file: Path) -> Iterator[tuple[str, Json]]:
    """(dotted name, value) of a file; an unknown key is an error with the nearest one."""
    for name, value in document.items():
        if name in OPEN_SECTIONS:
            if not isinstance(value, dict):
                raise SettingsError(
                    f"{file}: {name} is not a section", hint=f"write [{name}] on its own line"
                )
            continue
        is_section = any(key.startswith(name + ".") for key in KEYS)
        if is_section and not isinstance(value, dict):
            raise SettingsError(f"{file}: {name} is not a section", hint=f"write [{name}] on its own line")
        inside = {f"{name}.{k}": v for k, v in value.items()} if is_section else {name: value}
        for dotted, item in inside.items():
            if dotted not in KEYS:
                raise _unknown(f"{file}: there is no setting {dotted!r}", dotted, [*KEYS, *OPEN_SECTIONS])
            yield dotted, item


def _unknown(what: str, name: str, known: list[str]) -> SettingsError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return SettingsError(what, hint=f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")


def _key_of_variable(variable: str) -> Key | None:
    """The setting of an environment variable; a name that is nearly one is taken for a typing error."""
    if not variable.startswith(ENVIRONMENT_PREFIX) or _NOT_SETTINGS.fullmatch(variable):
        return None
    by_variable = {key.variable: key for key in KEYS.values()}
    if variable in by_variable:
        return by_variable[variable]
    near = difflib.get_close_matches(variable, by_variable, n=1, cutoff=0.9)
    if near:
        raise SettingsError(f"there is no setting {variable}", hint=f"did you mean {near[0]}?")
    return None


def _from_text(key: Key, text: str) -> Json:
    """The value of an environment variable: lists are separated by `:` for folders, else by commas."""
    if key.kind in ("folders", "names"):
        separator = os.pathsep if key.kind == "folders" else ","
        return [part.strip() for part in text.split(separator) if part.strip()]
    if key.kind in ("whole", "seconds"):
        try:
            return int(text) if key.kind == "whole" else float(text)
        except ValueError:
            return text
    return text


def _checked(key: Key, value: Json, folder: Path | None, place: str) -> Json:
    """The value in its final form; SettingsError with the place otherwise."""
    if key.kind == "path":
        return _database_path(value, folder, place)
    if key.kind in ("folders", "names"):
        if not isinstance(value, list) or not all(isinstance(part, str) and part for part in value):
            raise SettingsError(f"{place} must be a list of texts, not {value!r}")
        if key.kind == "names":
            return value
        is_modules_too = key.name == "handlers"
        return [_folder_or_module(part, folder, place, is_modules_too=is_modules_too) for part in value]
    is_number = isinstance(value, int if key.kind == "whole" else (int, float)) and not isinstance(
        value, bool
    )
    if not is_number or not key.lowest <= value <= key.highest:
        unit = "whole number" if key.kind == "whole" else "number of seconds"
        raise SettingsError(f"{place} must be a {unit} from {key.lowest:g} to {key.highest:g}, not {value!r}")
    return value


def _database_path(value: Json, folder: Path | None, place: str) -> str:
    hint = "give the path of a file, for example .orch8/orch8.db"
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise SettingsError(f"{place} must be the path of the database file, not {value!r}", hint=hint)
    if value.startswith(("file:", "sqlite:")) or value == ":memory:":
        raise SettingsError(f"{place} is {value!r}; the database is a file, named by its path", hint=hint)
    path = _absolute(value, folder, place)
    if path.is_dir():
        raise SettingsError(f"{place}: {path} is a folder", hint=f"did you mean {path / DATABASE_NAME}?")
    return str(path)


def _folder_or_module(text: str, folder: Path | None, place: str, *, is_modules_too: bool) -> str:
    if is_modules_too and _MODULE.fullmatch(text) and not (folder is not None and (folder / text).exists()):
        return text
    return str(_absolute(text, folder, place))


def _absolute(text: str, folder: Path | None, place: str) -> Path:
    if text == "~" or text.startswith("~/"):
        return _home() / text[2:]
    path = Path(text)
    if path.is_absolute():
        return Path(os.path.normpath(path))
    if folder is None:
        raise SettingsError(
            f"{place}: {text!r} is relative, and the working folder is gone", hint="give the full path"
        )
    return Path(os.path.normpath(folder / path))


def _read_file(file: Path) -> dict[str, Json]:
    try:
        found = file.stat()
        user = os.geteuid()
        if found.st_uid not in (user, 0) and user != 0:
            raise SettingsError(
                f"{file} belongs to another user; it could name code that would run as you",
                hint="copy it, or work in a folder of your own",
            )
        return tomllib.loads(file.read_bytes().decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: {error}", hint="the file must be TOML") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed under us
        return None


def _project_file(here: Path | None) -> Path | None:
    if here is None:
        return None
    return next((f for f in (folder / FILE_NAME for folder in (here, *here.parents)) if _is_there(f)), None)


def _user_file() -> Path | None:
    try:
        file = _user_folder("config") / FILE_NAME
    except SettingsError:  # no home: then there is no file in it, and `db` says so if it is needed
        return None
    return file if _is_there(file) else None


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False


def _default_database(project_folder: Path | None) -> str:
    if project_folder is not None:
        return str(project_folder / ".orch8" / DATABASE_NAME)
    return str(_user_folder("data") / DATABASE_NAME)


def _user_folder(kind: str) -> Path:
    """The user's own folder for this program; SettingsError if there is no usable home."""
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen is not None:
        if not Path(chosen).is_absolute():
            raise SettingsError(f"{HOME_VARIABLE} must be a full path, not {chosen!r}")
        return Path(chosen)
    import platformdirs

    find = platformdirs.user_data_path if kind == "data" else platformdirs.user_config_path
    path = find(APP_NAME, appauthor=False)
    if not Path(os.environ.get(f"XDG_{kind.upper()}_HOME", "")).is_absolute():
        _home()
    if not path.is_absolute():
        raise SettingsError(f"the user's {kind} folder {str(path)!r} is not a full path", hint=SET_HOME_HINT)
    return path


def _home() -> Path:
    """The user's home; never a guess."""
    text = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises RuntimeError where this says "~"
    given = os.environ.get("HOME")
    if given is None and text == "~":
        raise SettingsError("HOME is not set and this user has no home folder", hint=SET_HOME_HINT)
    if not given and given is not None:
        raise SettingsError("HOME is empty", hint=SET_HOME_HINT)
    if not Path(text).is_absolute() or not Path(text).is_dir():
        raise SettingsError(f"the home folder {text!r} is not there", hint=SET_HOME_HINT)
    return Path(text)
