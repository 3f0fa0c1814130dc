"""`init`, `validate`, `sequences` and `handlers`: what an author types."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from orch8_local.cli.main import run
from orch8_local.cli.project import FILES


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    status = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def call_json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Any]:
    status, out, _ = call(capsys, *arguments, "--json")
    return status, json.loads(out)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder fresh from `init`, which is the working folder."""
    assert run(["init", str(tmp_path / "shop")]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


# --- init ----------------------------------------------------------------------------------------------------


def test_init_makes_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`init DIR` makes settings, a sequence, a handler and a .gitignore, and says what to do next."""
    status, out, err = call(capsys, "init", tmp_path / "a" / "b")
    assert status == 0
    for name in ("orch8-local.toml", "sequences/hello.json", "handlers/example.py", ".gitignore"):
        assert (tmp_path / "a" / "b" / name).is_file()
        assert name in out
    assert "orch8-local run hello" in err


@pytest.mark.parametrize("name", ["orch8-local.toml", "sequences/hello.json", "handlers/example.py"])
def test_init_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A file that is in the way is named, kept, and nothing else is written."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    status, out, err = call(capsys, "init", tmp_path)
    assert status == 7
    assert str(tmp_path / name) in err
    assert out == ""
    assert (tmp_path / name).read_text() == "mine"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def test_init_sees_a_dangling_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link that leads nowhere is in the way too: following it would write somewhere else."""
    (tmp_path / "orch8-local.toml").symlink_to(tmp_path / "elsewhere.toml")
    status, _, err = call(capsys, "init", tmp_path)
    assert status == 7
    assert "orch8-local.toml" in err
    assert not (tmp_path / "elsewhere.toml").exists()


def test_init_keeps_a_gitignore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An existing .gitignore is kept as it is, and the line it needs is named."""
    (tmp_path / ".gitignore").write_text("*.log\n")
    status, _, err = call(capsys, "init", tmp_path)
    assert status == 0
    assert (tmp_path / ".gitignore").read_text() == "*.log\n"
    assert ".orch8/" in err


def test_init_in_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that cannot become a folder gives one clear line, not a trace."""
    (tmp_path / "file").write_text("x")
    status, _, err = call(capsys, "init", tmp_path / "file")
    assert status == 9
    assert err.startswith("error: ")
    assert str(tmp_path / "file") in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "way_out"),
    [(errno.EROFS, "choose a folder that you may write to"), (errno.ENOSPC, "free some space")],
)
def test_init_on_a_disk_that_takes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    way_out: str,
) -> None:
    """A read-only or full disk is status 9 with the file and the way out."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    status, _, err = call(capsys, "init", tmp_path / "new")
    assert status == 9
    assert str(tmp_path / "new" / "orch8-local.toml") in err
    assert way_out in err


def test_init_lists_its_files_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`init --json` gives the folder and the files made."""
    status, value = call_json(capsys, "init", tmp_path)
    assert status == 0
    assert value == {"folder": str(tmp_path), "files": [str(tmp_path / name) for name in FILES]}
