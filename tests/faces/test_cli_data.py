"""`db`, `doctor`, `validate`, `sequences`, `handlers` and the looks at runs, as processes."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.faces.processes import Shell, line_with


@pytest.fixture
async def shell(tmp_path: Path) -> Shell:
    """A folder in which one run has completed."""
    made = Shell(tmp_path)
    assert (await made.run("run", "hello")).status == 0
    return made


async def test_a_database_is_described_checked_and_copied(shell: Shell) -> None:
    """`db info`, `db check` and `db backup` agree about what is there, as JSON and as text."""
    info = (await shell.run("db", "info", "--json")).value
    assert info["runs"] == {"completed": 1}
    assert info["path"] == str(shell.database)
    checked = (await shell.run("db", "check", "--json")).value
    assert checked["ok"] is True
    assert checked["figures"]["events"] == info["n_events"]
    copied = await shell.run("db", "backup", "copy.db")
    assert copied.status == 0, copied.err
    assert (await shell.run("db", "check", "--db", "copy.db")).status == 0
    assert (await shell.run("db", "backup", "copy.db")).status == 7


async def test_a_database_that_was_tampered_with_is_exit_9(shell: Shell) -> None:
    """A changed count is found, named, and gives the exit status of storage."""
    with sqlite3.connect(shell.database) as connection:
        connection.execute("UPDATE instance_counts SET n = 5 WHERE state = 'failed'")
    connection.close()
    found = await shell.run("db", "check")
    assert found.status == 9
    assert "counted as failed" in found.out
    assert found.err.startswith("error: ")


async def test_looking_works_beside_a_running_engine(shell: Shell) -> None:
    """While `up` owns the database every look works, a second `up` is refused by name, and nobody waits."""
    async with shell.start("up") as engine:
        await line_with(engine.stderr, "engine is up")
        for words in (["instances", "list"], ["db", "info"], ["db", "check"], ["doctor"], ["effects", "check"]):
            assert (await shell.run(*words)).status == 0, words
        second = await shell.run("up")
        assert second.status == 8
        assert str(engine.pid) in second.err
        assert "engine runs" in (await shell.run("doctor")).out
        engine.send_signal(signal.SIGTERM)
        assert await engine.wait() == 0


async def test_the_doctor_shows_every_setting_and_its_origin(shell: Shell) -> None:
    """Each check has a name and a level, each setting a value and a source; a bad setting is one finding."""
    value = (await shell.run("doctor", "--json")).value
    assert value["ok"] is True
    assert {check["level"] for check in value["checks"]} <= {"ok", "warning"}
    sources = {setting["name"]: setting["source"] for setting in value["settings"]}
    assert sources["db"] == "environment ORCH8_LOCAL_DB"
    assert sources["limits.grace_s"] == "default"
    (shell.folder / "orch8-local.toml").write_text("dbb = 'x'\n")
    bad = await shell.run("doctor")
    assert bad.status == 1
    assert "dbb" in bad.out


async def test_validate_names_all_problems_with_place_and_way_out(tmp_path: Path) -> None:
    """Every problem of every file has its line and column; one error makes the exit status 2."""
    shell = Shell(tmp_path)
    (tmp_path / "bad.json").write_text(
        '{"name": "x", "blocks": [\n'
        '  {"type": "step", "id": "a", "handler": "lgo"},\n'
        '  {"type": "step", "id": "a", "handler": "noop", "when": "qty = 7"}\n'
        "]}\n"
    )
    found = await shell.run("validate", "bad.json", "hello", "--json")
    assert found.status == 2
    bad, good = found.value
    assert (bad["valid"], good["valid"]) == (False, True)
    assert [(p["line"], p["suggestion"]) for p in bad["problems"]] == [
        (2, "did you mean 'log'?"),
        (3, "an id is unique in its tree"),
        (3, "two '=' compare: a == b"),
    ]
    text = await shell.run("validate", "bad.json")
    assert "bad.json:2:42: error" in text.out
    assert not shell.database.exists()


async def test_an_added_sequence_can_be_run_by_name(tmp_path: Path) -> None:
    """`sequences add` stores a document; an edited one is a new revision, which --strict refuses."""
    shell = Shell(tmp_path)
    blocks = [{"type": "step", "id": "a", "handler": "noop"}]
    (tmp_path / "s.json").write_text(json.dumps({"name": "mine", "blocks": blocks}))
    (added,) = (await shell.run("sequences", "add", "s.json", "--json")).value
    assert added["is_new"] is True
    assert (await shell.run("run", "mine")).status == 0
    (again,) = (await shell.run("sequences", "add", "s.json", "--json")).value
    assert again["is_new"] is False
    (tmp_path / "s.json").write_text(json.dumps({"name": "mine", "blocks": [{**blocks[0], "id": "b"}]}))
    assert (await shell.run("sequences", "add", "--strict", "s.json")).status == 7
    assert (await shell.run("sequences", "add", "s.json")).status == 0
    listed = (await shell.run("sequences", "list", "--json")).value
    assert sum(item["name"] == "mine" for item in listed) == 2


async def test_a_run_can_be_looked_at_from_every_side(shell: Shell) -> None:
    """`list`, `show`, `tree`, `outputs`, `timeline`, `watch`, by a unique beginning of the id."""
    (listed,) = (await shell.run("instances", "list", "--json")).value
    prefix = listed["id"][:12]
    shown = (await shell.run("instances", "show", prefix, "--json")).value
    assert shown["id"] == listed["id"]
    assert {node["block_id"] for node in shown["nodes"]} == {"greet", "remember", "recall"}
    assert (await shell.run("instances", "tree", prefix, "--json")).status == 0
    assert set((await shell.run("instances", "outputs", prefix, "--json")).value) == {"greet", "remember", "recall"}
    events = (await shell.run("instances", "timeline", prefix, "--json")).value
    assert events[0]["kind"] == "instance.started"
    assert events[-1]["kind"] == "instance.completed"
    assert (await shell.run("instances", "watch", prefix)).status == 0
    assert (await shell.run("instances", "show", "ffff")).status == 6
    assert (await shell.run("instances", "cancel", prefix)).status == 7


async def test_handlers_are_listed_with_what_happens_if_unclear(tmp_path: Path) -> None:
    """Every handler says its kind and mode; `show` has the params with types and defaults."""
    shell = Shell(tmp_path)
    modes = {item["name"]: item["mode"] for item in (await shell.run("handlers", "list", "--json")).value}
    assert modes["http_request"] == "at_most_once"
    assert modes["noop"] == "none"
    shown = (await shell.run("handlers", "show", "command", "--json")).value
    assert "argv" in shown["params"]["properties"]


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
async def test_a_completion_script_and_the_version_are_printed(tmp_path: Path, shell_name: str) -> None:
    """Both work anywhere, without a database."""
    shell = Shell(tmp_path)
    assert (await shell.run("completion", shell_name)).status == 0
    assert (await shell.run("version")).out.startswith("orch8-local ")
