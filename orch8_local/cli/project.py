"""`orch8-local init`: a folder to work in, with a sequence and a handler that run as they are.

Owns the texts of the new files. The easy mistake: overwriting something; every file is made only
where there is none, and all are looked at before the first is written.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import click

from orch8_local.cli.invocation import Invocation, common_options
from orch8_local.errors import AlreadyExists, DiskFull, ReadOnly, StoreError, Unsuitable

SETTINGS_TEXT = """\
# Settings of this project. Paths count from this folder. A flag wins over an environment variable
# (ORCH8_LOCAL_<KEY>), which wins over this file. `orch8-local doctor` shows every value and its origin.

# Where runs and receipts are kept. Copy it with `orch8-local db backup`, never with cp while it is in use.
db = ".orch8/orch8.db"

# Folders with sequence files: `orch8-local run NAME` finds them by the name in the document.
sequences = ["sequences"]

# Folders with handlers of your own, or names of Python modules.
handlers = ["handlers"]

# Names of handlers that are provided by workers elsewhere; any other unknown name is an error.
# external_handlers = []

[limits]
# Steps that may run at the same time.
# max_concurrent = 200

# Seconds that running steps get to finish when the program is told to stop.
# grace_s = 10.0

# Seconds that a cut-off request is still listened to: a late answer is better than an unknown outcome.
# settle_s = 60.0

# How often a run may take the program down before it is parked.
# max_recoveries = 3

[http]
# Hosts in your own network that a step may call although their name comes from run data. A host that
# is written in the sequence or given in the run's config needs no line here.
# hosts = ["192.168.1.20", "printer.lan"]
"""

SEQUENCE_TEXT = """\
{
  "name": "hello",
  "version": 1,
  "description": "Greets somebody and counts the words of the greeting. Needs nothing.",
  "input_schema": {
    "type": "object",
    "properties": {
      "name": {"type": "string", "description": "Who is greeted."}
    },
    "examples": [{"name": "Ada"}]
  },
  "blocks": [
    {
      "type": "step",
      "id": "greet",
      "handler": "log",
      "params": {"message": "Hello, {{ data.name | default('world') }}!"}
    },
    {
      "type": "step",
      "id": "count",
      "handler": "count_words",
      "params": {"text": "{{ outputs.greet.message }}"}
    }
  ]
}
"""

HANDLER_TEXT = '''\
"""Handlers of this project: a step in a sequence calls one by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orch8_local import Context, Rejected, handler
from pydantic import BaseModel, Field


class CountParams(BaseModel):
    """What `count_words` takes. `orch8-local handlers show count_words` prints this."""

    text: str = Field(description="The text whose words are counted.")


@handler("count_words", kind=None, params=CountParams)
async def count_words(ctx: Context, params: CountParams) -> dict[str, Any]:
    """Count the words of a text.

    `kind=None` says that nothing leaves this program, so the step needs no receipt and may run again.
    """
    return {"words": len(params.text.split())}


class NoteParams(BaseModel):
    """What `append_note` takes."""

    path: str = Field(description="The file that gets the line; its folder must be there.")
    text: str = Field(description="The line.")


@handler("append_note", kind="storage", params=NoteParams, marks_dispatch=True)
async def append_note(ctx: Context, params: NoteParams) -> dict[str, Any]:
    """Append one line to a file.

    An effect: it is done at most once. `Rejected` says that nothing happened and that trying again is
    of no use; `Refused` would say that nothing happened and that the retry policy may try again. If
    anything else goes wrong after `ctx.dispatching()`, the outcome is unknown and the run stops there.
    """
    path = Path(params.path)
    if not path.parent.is_dir():
        raise Rejected(f"there is no folder {path.parent}")
    await ctx.dispatching()
    with path.open("a", encoding="utf-8") as file:
        file.write(params.text + "\\n")
    return {"path": str(path)}
'''

IGNORE_TEXT = """\
# The database and what lies beside it.
.orch8/
__pycache__/
"""

IGNORE_NAME = ".gitignore"
FILES = {
    "orch8-local.toml": SETTINGS_TEXT,
    "sequences/hello.json": SEQUENCE_TEXT,
    "handlers/example.py": HANDLER_TEXT,
    IGNORE_NAME: IGNORE_TEXT,
}


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@common_options
def init(invocation: Invocation, folder: Path) -> None:
    """Make a project folder: settings, a sequence, a handler. Nothing is overwritten."""
    made = make_project(folder)
    if invocation.is_json:
        root = folder.resolve()
        files = [str(root / path.relative_to(folder)) for path in made]
        invocation.write_json({"folder": str(root), "files": files})
        return
    for path in made:
        invocation.write(f"made {path}")
    if folder / IGNORE_NAME not in made:
        invocation.note(f"{folder / IGNORE_NAME} was there already: let it ignore .orch8/")
    where = "" if folder == Path() else f"cd {folder} && "
    invocation.note(f"next: {where}orch8-local run hello")


def make_project(folder: Path) -> list[Path]:
    """Write the files of a new project and return their paths.

    An existing `.gitignore` is left as it is. Raises AlreadyExists, naming the files, before anything
    is written; ReadOnly, DiskFull or Unsuitable if the folder cannot take them.
    """
    there = [path for name in FILES if name != IGNORE_NAME and _is_there(path := folder / name)]
    if there:
        names = ", ".join(str(path) for path in there)
        raise AlreadyExists(
            f"{names} {'is' if len(there) == 1 else 'are'} there already; nothing was written",
            hint="choose another folder, or move the file away",
            details={"files": [str(path) for path in there]},
        )
    made: list[Path] = []
    for name, text in FILES.items():
        path = folder / name
        if name == IGNORE_NAME and _is_there(path):
            continue
        try:
            _make_folders(path.parent, made)
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
        except OSError as error:
            _take_back(made)
            raise _storage_error(error, path) from error
    return [path for path in made if path.is_file()]


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it that are not there, noting each."""
    if folder.is_dir():
        return
    _make_folders(folder.parent, made)
    folder.mkdir()
    made.append(folder)


def _take_back(made: list[Path]) -> None:
    """Remove what this call has made, last first: half a project would stand in the way of the next try."""
    for path in reversed(made):
        with contextlib.suppress(OSError):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()


def _is_there(path: Path) -> bool:
    """True for anything of that name, a dangling link too."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _storage_error(error, path) from error
    return True


def _storage_error(error: OSError, path: Path) -> StoreError:
    what = f"{path} cannot be written: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(what, hint="free some space and run it again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnly(what, hint="choose a folder that you may write to")
    return Unsuitable(what, hint="choose another folder")
