"""Completion: the script of each shell, and the words it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orch8_local.cli.completion import HOW_TO
from orch8_local.cli.main import COMMANDS, run

ROOT = Path(__file__).parent.parent.parent


def words(line: str, folder: Path, kind: str = "plain", **environment: str) -> list[str]:
    """What bash is offered at the end of a line; the last word is the one being typed.

    kind: `plain` for words, `file` for what the shell completes itself.
    """
    parts = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "orch8_local"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "_ORCH8_LOCAL_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(parts) - 1),
            **environment,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "", done.stderr
    rows = [row.partition(",") for row in done.stdout.splitlines() if row]
    return [word for found, _, word in rows if found == kind]


@pytest.mark.parametrize("shell", HOW_TO)
def test_every_shell_has_a_script(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    """`completion SHELL` prints a script for this program, on standard output and nothing else."""
    assert run(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert "_ORCH8_LOCAL_COMPLETE" in out
    assert "orch8-local" in out
    assert err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_can_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shell: str
) -> None:
    """A shell that is installed finds no fault with its script."""
    assert run(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    try:
        done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"{shell} is not installed")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A shell that there is no script for is a usage error that names those there are."""
    assert run(["completion", "tcsh"]) == 2
    assert "zsh" in capsys.readouterr().err


def test_commands_complete(tmp_path: Path) -> None:
    """The first word completes to the commands."""
    assert set(words("orch8-local ", tmp_path)) >= set(COMMANDS)
    assert words("orch8-local val", tmp_path) == ["validate"]


def test_sequences_complete_by_name(tmp_path: Path) -> None:
    """`run` completes the names of bundled sequences and of those in the project's folders."""
    assert run(["init", str(tmp_path)]) == 0
    (tmp_path / "sequences" / "other.json").write_text('{"name": "invoice", "blocks": []}')
    (tmp_path / "sequences" / "broken.json").write_text("{")
    assert {"hello", "charge-demo", "invoice", "broken"} <= set(words("orch8-local run ", tmp_path))
    assert words("orch8-local run inv", tmp_path) == ["invoice"]


@pytest.mark.parametrize("line", ["validate seq", "sequences add seq", "run ./seq", "sequences show ./seq"])
def test_files_are_left_to_the_shell(tmp_path: Path, line: str) -> None:
    """Where a file is wanted, or no name fits, the shell completes files as it always does."""
    assert words(f"orch8-local {line}", tmp_path, kind="file") == [line.split()[-1]]


def test_handlers_complete_by_name(tmp_path: Path) -> None:
    """`handlers show` completes built-in handlers and the project's own."""
    assert run(["init", str(tmp_path)]) == 0
    assert words("orch8-local handlers show count", tmp_path) == ["count_words"]
    assert "http_request" in words("orch8-local handlers show ", tmp_path)


def test_completion_is_silent_when_it_cannot_know(tmp_path: Path) -> None:
    """Without a database, with broken settings, without a home: no words, and no message either."""
    assert words("orch8-local instances show ", tmp_path) == []
    (tmp_path / "orch8-local.toml").write_text("dbb = 1")
    assert words("orch8-local instances show ", tmp_path) == []
    assert words("orch8-local handlers show ", tmp_path) == []
