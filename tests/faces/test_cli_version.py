"""`version` and `--version`: the same answer, quickly, everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orch8_local import __version__
from orch8_local.cli.main import run

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("arguments", [["--version"], ["version"], ["version", "--json"]])
def test_the_version_is_one_line(arguments: list[str]) -> None:
    """Both spellings print the version, in a locale that knows ASCII only and without a home too."""
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "LANG", "LC_ALL")}
    done = subprocess.run(
        [sys.executable, "-m", "orch8_local", *arguments],
        env={**environment, "LC_ALL": "C", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "--json" in arguments:
        assert json.loads(done.stdout) == {"name": "orch8-local", "version": __version__}
    else:
        assert done.stdout == f"orch8-local {__version__}\n"


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Called without a command, the program lists them and ends with the status of a usage error."""
    assert run([]) == 2
    assert "validate" in capsys.readouterr().err


def test_a_command_that_is_not_there_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error in a command is answered with the command that was meant."""
    assert run(["valdate"]) == 2
    assert "validate" in capsys.readouterr().err
