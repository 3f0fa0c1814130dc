"""JSON that a person gives on the command line: as text, from a file, from standard input, by path.

Owns `JSON|@FILE|-` and `--set PATH=VALUE`. Integers keep all their digits; NaN, numbers out of range
and duplicate keys are refused with their place. The easy mistake: taking a value that is almost JSON
for text; `--set limit=1e400` is an error, not the word "1e400".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from orch8_local.errors import InputError, Orch8Error

Json = Any


def json_argument(given: str, option: str) -> Json:
    """The value of an option that takes `JSON|@FILE|-`; InputError names the option and the place."""
    if given == "-":
        return strict_json(read_stdin(option), f"{option} (standard input)")
    if given.startswith("@"):
        return strict_json(read_text(given[1:], option), given[1:])
    return strict_json(given, option)


def text_argument(given: str, option: str) -> str:
    """The value of an option that takes `TEXT|@FILE`."""
    return read_text(given[1:], option) if given.startswith("@") else given


def strict_json(text: str, source: str) -> Json:
    """Parse JSON exactly; InputError with `source:line:column`."""
    from orch8_local.sequence.json_source import loads_strict

    try:
        return loads_strict(text, source=source)
    except Orch8Error as error:
        raise InputError(error.message, hint=_quoting_hint(text, source), details=error.details) from error


def read_text(path: str, option: str) -> str:
    """The text of a file named by an option; InputError names both."""
    if not path:
        raise InputError(f"{option}: there is no file name after @")
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{option}: {path} is not UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{option}: {path} cannot be read: {error.strerror}") from error


def read_stdin(option: str) -> str:
    """All of standard input."""
    if sys.stdin.isatty():
        sys.stderr.write(f"{option}: reading from the terminal; end with Ctrl-D\n")
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{option}: standard input is not UTF-8 (byte {error.start})") from error


def with_settings(data: Json, config: Json, settings: tuple[str, ...]) -> tuple[Json, Json]:
    """Apply every `--set PATH=VALUE`, in order: under config if PATH starts with `config.`, else data."""
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator or not path.strip():
            raise InputError(f"--set {setting!r} is not PATH=VALUE", hint="for example --set order.id=7")
        keys = path.strip().split(".")
        value = _value(text, f"--set {path}")
        if keys[0] == "config" and len(keys) > 1:
            config = _placed(config, keys[1:], value, setting)
        else:
            data = _placed(data, keys, value, setting)
    return data, config


def _value(text: str, source: str) -> Json:
    """JSON if it parses, else the text itself; JSON that is out of range or ambiguous is an error."""
    try:
        json.loads(text)
    except ValueError:
        return text
    if text.strip() in ("NaN", "Infinity", "-Infinity"):
        return text
    return strict_json(text, source)


def _placed(root: Json, keys: list[str], value: Json, setting: str) -> Json:
    """`root` with the value at a path; objects on the way are made, lists are indexed, nothing else."""
    if root is None:
        root = {}
    key, rest = keys[0], keys[1:]
    if not key:
        raise InputError(f"--set {setting!r} has an empty name in its path")
    if isinstance(root, dict):
        return {**root, key: _placed(root.get(key), rest, value, setting) if rest else value}
    if isinstance(root, list):
        if not key.isdecimal() or int(key) >= len(root):
            raise InputError(f"--set {setting!r}: {key!r} is no position in a list of {len(root)}")
        items = list(root)
        items[int(key)] = _placed(items[int(key)], rest, value, setting) if rest else value
        return items
    raise InputError(f"--set {setting!r}: there is {type(root).__name__} where {key!r} should go into an object")


def _quoting_hint(text: str, source: str) -> str | None:
    if source.startswith("--") and text[:1] in ("{", "[") and '"' not in text:
        return "the shell has eaten the double quotes; put single quotes around the JSON"
    return None
