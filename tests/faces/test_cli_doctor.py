"""`doctor`: every check runs whatever the others found, and each finding has a way out."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from orch8_local import upkeep
from orch8_local.cli import doctor
from orch8_local.cli.main import run

DOCUMENT = '{"name": "mine", "blocks": [{"type": "step", "id": "a", "handler": "noop"}]}'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project with one completed run, which is the working folder."""
    assert run(["init", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    assert run(["run", "hello"]) == 0
    capsys.readouterr()
    return tmp_path


def examine(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """Exit status, the checks by name, the settings by name."""
    status = run(["doctor", "--json", *words])
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] is (status == 0)
    checks = {check["name"]: check for check in value["checks"]}
    return status, checks, {setting["name"]: setting for setting in value["settings"]}


def test_a_sound_machine_is_status_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing bad: status 0, every check named, every setting with the place it came from."""
    status, checks, settings = examine(capsys)
    assert status == 0
    assert set(checks) == {
        "program",
        "sqlite",
        "clock",
        "terminal",
        "place",
        "free space",
        "disk sync",
        "permissions",
        "owner",
        "database",
        "runs",
        "effects",
        "handlers",
        "sequences",
    }
    assert checks["runs"]["text"] == "1 completed"
    assert settings["db"]["value"] == str(project / ".orch8" / "orch8.db")
    assert settings["db"]["source"] == str(project / "orch8-local.toml")
    assert settings["limits.grace_s"]["source"] == "default"


def test_before_the_first_run_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a database the doctor says so, makes none, and is content."""
    monkeypatch.chdir(tmp_path)
    status, checks, _ = examine(capsys, "--db", "new/orch8.db")
    assert status == 0
    assert "none yet" in checks["database"]["text"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "place"), [("def x(:\n", "broken.py:1"), ("import no_such_module_here\n", "no_such_module_here")]
)
def test_a_handler_file_that_does_not_load_is_bad(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, place: str
) -> None:
    """The file, the line and the reason are named, and all other checks still run."""
    (project / "handlers" / "broken.py").write_text(text)
    status, checks, _ = examine(capsys)
    assert status == 1
    assert checks["handlers"]["level"] == "bad"
    assert place in checks["handlers"]["text"]
    assert "broken.py" in checks["handlers"]["text"]
    assert checks["handlers"]["next"]
    assert checks["sequences"]["level"] == "ok"


def test_a_setting_that_is_wrong_hides_no_check_of_the_machine(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt setting is a finding with the nearest name; what needs no settings is checked all the same."""
    (project / "orch8-local.toml").write_text("dbb = 'x'\n")
    status, checks, settings = examine(capsys)
    assert status == 1
    assert checks["settings"]["level"] == "bad"
    assert "'db'" in checks["settings"]["next"]
    assert {"program", "sqlite", "clock"} <= set(checks)
    assert settings == {}


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (b"no database at all, but a text of more than a hundred bytes; " * 3, "does not begin like"),
        (None, "another program"),
    ],
)
def test_a_database_that_cannot_be_used_is_bad_once(
    project: Path, capsys: pytest.CaptureFixture[str], damage: bytes | None, word: str
) -> None:
    """The reason is said once; what cannot be told without the database says that; no byte changes."""
    path = project / ".orch8" / "orch8.db"
    path.unlink()
    if damage is None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (x)")
        connection.close()
    else:
        path.write_bytes(damage)
    path.chmod(0o600)
    before = path.read_bytes()
    status, checks, _ = examine(capsys)
    assert status == 1
    assert [name for name, check in checks.items() if check["level"] == "bad"] == ["database"]
    assert word in checks["database"]["text"]
    assert checks["runs"]["level"] == checks["effects"]["level"] == "warning"
    assert path.read_bytes() == before


def test_a_run_that_nobody_carries_on_is_a_warning(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that have not ended, and no engine: a warning that names the command; the status stays 0."""
    assert run(["run", "hello", "--detach"]) == 0
    capsys.readouterr()
    status, checks, _ = examine(capsys)
    assert status == 0
    assert checks["runs"]["level"] == "warning"
    assert checks["runs"]["next"] == "orch8-local up"


def test_a_file_that_differs_from_what_was_added_is_a_warning(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs by name is what was added; if its file says something else by now, both are named."""
    path = project / "elsewhere.json"
    path.write_text(DOCUMENT)
    assert run(["sequences", "add", "elsewhere.json"]) == 0
    capsys.readouterr()
    assert examine(capsys)[1]["sequences"]["level"] == "ok"
    path.write_text(DOCUMENT.replace('"a"', '"b"'))
    found = examine(capsys)[1]["sequences"]
    assert found["level"] == "warning"
    assert "mine" in found["text"]
    assert found["next"] == f"orch8-local sequences add {path}"
    path.unlink()
    assert examine(capsys)[1]["sequences"]["level"] == "ok"


def test_a_sequence_that_cannot_be_used_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken file in a sequence folder is a warning that says how to see what is wrong with it."""
    (project / "sequences" / "broken.json").write_text("{")
    found = examine(capsys)[1]["sequences"]
    assert found["level"] == "warning"
    assert "broken" in found["text"]
    assert found["next"].startswith("orch8-local validate ")


def test_a_database_that_others_may_write_is_bad(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No run would start on it, so the doctor calls it bad and gives the command."""
    path = project / ".orch8" / "orch8.db"
    path.chmod(0o666)
    status, checks, _ = examine(capsys)
    assert status == 1
    assert checks["permissions"]["next"] == f"chmod go-w {path}"


@pytest.mark.parametrize(
    ("name", "level", "place"),
    [
        ("place", "bad", {"is_suitable": False, "kind": "nfs4"}),
        ("free space", "warning", {"free_bytes": 1_000_000}),
        ("disk sync", "warning", {"sync_ms": 0.001}),
        ("disk sync", "bad", {"sync_ms": None}),
    ],
)
def test_a_disk_that_cannot_hold_a_ledger_is_found(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    level: str,
    place: dict[str, Any],
) -> None:
    """A network disk, a full one, one that only says that it syncs, one that takes nothing: each by name."""
    facts = {"folder": project, "kind": "ext4", "is_suitable": True, "free_bytes": 10**12, "sync_ms": 5.0, **place}
    monkeypatch.setattr(upkeep, "look_at_place", lambda _: upkeep.Place(**facts))
    status, checks, _ = examine(capsys)
    assert checks[name]["level"] == level
    assert checks[name]["next"]
    assert status == (1 if level == "bad" else 0)


def test_the_clock_of_a_machine_without_a_battery_is_noticed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is before this program was written is a warning, for due times are counted by it."""
    monkeypatch.setattr(doctor, "LEAST_LIKELY_US", 10**18)
    found = examine(capsys)[1]["clock"]
    assert found["level"] == "warning"
    assert "set the clock" in found["next"]


def test_the_doctor_leaves_nothing_behind(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Looking changes nothing: the same files with the same bytes are there afterwards."""

    def files() -> dict[Path, bytes]:
        kept = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
        return {path: content for path, content in kept.items() if path.suffix in (".db", ".toml", ".json", ".py")}

    before = files()
    examine(capsys)
    assert files() == before
    assert not list((project / ".orch8").glob("*sync*"))
