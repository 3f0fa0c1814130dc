"""The sequences that ship with the program, by name and as text.

Owns where they lie: inside the package once installed, in the folder `sequences/` at the top of a
checkout. Reads files and nothing else; parsing is for `document`. The easy mistake: looking for
`sequences/` beside the package first, which in an installed program is somebody else's folder.
"""

from __future__ import annotations

from pathlib import Path

from orch8_local.errors import NotFound

SUFFIX = ".json"


def bundled_names() -> list[str]:
    """The names of the bundled sequences, sorted; each is its file's name without `.json`."""
    return sorted(path.stem for path in _folder().glob(f"*{SUFFIX}"))


def bundled_text(name: str) -> str:
    """The document of one bundled sequence, as text.

    Raises NotFound, naming all there are, if no bundled sequence has exactly this name.
    """
    names = bundled_names()
    if name not in names:  # also keeps a name with a slash from leaving the folder
        raise NotFound(
            f"there is no bundled sequence {name!r}",
            hint="bundled are: " + ", ".join(names),
        )
    return (_folder() / f"{name}{SUFFIX}").read_text(encoding="utf-8")


def bundled_source(name: str) -> str:
    """How messages call the document of a bundled sequence."""
    return f"bundled:{name}"


def _folder() -> Path:
    from importlib.resources import files

    package = files("orch8_local")
    installed = Path(str(package / "sequences"))
    if installed.is_dir():
        return installed
    return Path(str(package)).parent / "sequences"
