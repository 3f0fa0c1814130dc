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


def test_init_takes_back_what_it_could_not_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that becomes full half-way: nothing half made stays, so the next try is not refused."""
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "example.py":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        assert call(capsys, "init", tmp_path / "new" / "shop")[0] == 9
    assert list(tmp_path.iterdir()) == []
    assert call(capsys, "init", tmp_path / "new" / "shop")[0] == 0


def test_init_lists_its_files_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`init --json` gives the folder and the files made."""
    status, value = call_json(capsys, "init", tmp_path)
    assert status == 0
    assert value == {"folder": str(tmp_path), "files": [str(tmp_path / name) for name in FILES]}


# --- validate ------------------------------------------------------------------------------------------------


def test_validate_looks_at_every_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there, or is a folder, hides no problem of the next one; each gets its verdict."""
    (project / "bad.json").write_text('{"name": "x", "blocks": []}')
    status, value = call_json(capsys, "validate", "nope.json", "sequences", "bad.json", "sequences/hello.json")
    assert status == 2
    assert [(one["file"], one["valid"]) for one in value] == [
        ("nope.json", False),
        ("sequences", False),
        ("bad.json", False),
        ("sequences/hello.json", True),
    ]
    assert [one["problems"][0]["code"] for one in value[:2]] == ["file.unreadable"] * 2
    assert call(capsys, "validate", "nope.json", "hello")[0] == 6


def test_validate_of_what_is_not_there_is_not_found(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file alone that is not there is status 6, and the nearest name beside it is offered."""
    status, out, err = call(capsys, "validate", "sequences/helo.json")
    assert (status, out) == (6, "")
    assert "did you mean sequences/hello.json?" in err


def test_validate_reads_a_stream_that_never_ends_only_so_far(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More than 16 MiB is no sequence: the limit is named, and the memory stays small."""
    status, _, err = call(capsys, "validate", "/dev/zero")
    assert status == 2
    assert "16 MiB" in err


def test_validate_shows_text_that_is_safe_to_show(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters of a document reach no terminal: they are shown as escapes."""
    (project / "bad.json").write_text('{"name": "x", "blocks": [{"type": "\\u001b[31mred", "id": "a"}]}')
    status, out, err = call(capsys, "validate", "bad.json")
    assert status == 2
    assert "\x1b" not in out + err
    assert "red" in out


def test_validate_warns_of_what_a_start_would_refuse(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A document that is valid and cannot run in this version yet: valid, with a warning for each such part."""
    step = '{"type": "step", "id": "%s", "handler": "noop", "delay": {"duration": 1000}}'
    blocks = f'[{{"type": "parallel", "id": "p", "branches": [[{step % "a"}]]}}, {step % "b"}]'
    (project / "later.json").write_text(f'{{"name": "later", "blocks": {blocks}}}')
    status, ((found),) = call_json(capsys, "validate", "later.json")
    assert (status, found["valid"]) == (0, True)
    warned = [one["message"] for one in found["problems"] if one["code"] == "document.not_built"]
    assert len(warned) == 3
    assert "'parallel'" in warned[0]
    assert all("'delay'" in message for message in warned[1:])
    status, _, err = call(capsys, "run", "later.json")
    assert status == 2
    assert "parallel" in err


@pytest.mark.parametrize("words", [["validate", "hello"], ["sequences", "show", "hello"], ["handlers", "list"]])
def test_looking_makes_no_database(project: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """What an author asks before the first run leaves no file behind."""
    assert call(capsys, *words)[0] == 0
    assert not (project / ".orch8").exists()


# --- sequences -----------------------------------------------------------------------------------------------


def test_add_checks_all_files_before_the_first_is_stored(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One bad file among several: its place is named, and nothing is stored, not even a database is made."""
    (project / "bad.json").write_text('{"name": "x", "blocks": [{"type": "step", "id": "a", "handler": "lgo"}]}')
    status, out, err = call(capsys, "sequences", "add", "sequences/hello.json", "bad.json")
    assert (status, out) == (2, "")
    assert "bad.json:1:" in err
    assert "did you mean 'log'?" in err
    assert not (project / ".orch8").exists()


def test_a_handler_of_somebody_else_is_accepted_if_the_settings_name_it(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`external_handlers` lets a document pass that calls what nobody here provides."""
    (project / "far.json").write_text('{"name": "far", "blocks": [{"type": "step", "id": "a", "handler": "afar"}]}')
    assert call(capsys, "sequences", "add", "far.json")[0] == 2
    monkeypatch.setenv("ORCH8_LOCAL_EXTERNAL_HANDLERS", "afar")
    assert call(capsys, "sequences", "add", "far.json")[0] == 0
    status, value = call_json(capsys, "sequences", "show", "far")
    assert (status, value["name"]) == (0, "far")


def test_a_broken_file_hides_no_other_sequence(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`sequences list` has what can be read, and names what cannot under the name of its file."""
    (project / "sequences" / "broken.json").write_bytes(b"\xff\xfe")
    status, value = call_json(capsys, "sequences", "list")
    assert status == 0
    listed = {(one["name"], one["origin"]): one["problem"] for one in value}
    assert listed["hello", "project"] is None
    assert "UTF-8" in listed["broken", "project"]
    assert ("charge-demo", "bundled") in listed


def test_the_projects_own_sequence_comes_before_a_bundled_one(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name means the project's file first; a version that is not there names those that are."""
    status, out, _ = call(capsys, "sequences", "show", "hello")
    assert status == 0
    assert str(project / "sequences" / "hello.json") in out
    status, _, err = call(capsys, "sequences", "show", "hello@7")
    assert status == 6
    assert "there is 1" in err
    assert call(capsys, "sequences", "show", "hello@x")[0] == 2


# --- handlers ------------------------------------------------------------------------------------------------


def test_a_handler_shows_what_it_takes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`handlers show` has params with type, default and meaning, and what happens if an outcome is unclear."""
    status, out, _ = call(capsys, "handlers", "show", "append_note")
    assert status == 0
    assert "the run stops until somebody finds out" in out
    assert "The file that gets the line" in out
    status, value = call_json(capsys, "handlers", "show", "append_note")
    assert value["kind"] == "storage"
    assert value["mode"] == "at_most_once"
    assert set(value["params"]["required"]) == {"path", "text"}


def test_a_handler_that_is_not_there_names_the_nearest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt handler is status 6 with the one that was meant."""
    status, _, err = call(capsys, "handlers", "show", "count_word")
    assert status == 6
    assert "count_words" in err
