"""The entry point: `orch8-local` and `python -m orch8_local`.

`--version` is answered here, before the command line is loaded: package managers and completion
scripts ask for it often. The easy mistake: an import at the top of this file.
"""

from __future__ import annotations

import sys

from orch8_local import __version__
from orch8_local.cli.streams import guarded


def print_version() -> int:
    """One line: the program and its version."""
    sys.stdout.write(f"orch8-local {__version__}\n")
    return 0


def main() -> None:
    """Run the command line and exit with its status."""
    if sys.argv[1:] == ["--version"]:
        sys.exit(guarded(print_version))
    from orch8_local.cli.main import run

    sys.exit(guarded(run))


if __name__ == "__main__":
    main()
