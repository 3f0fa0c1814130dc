"""`run`, `instances` and the ways in which a command line can be wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.faces.processes import Shell


async def test_hello_completes_and_says_so(tmp_path: Path) -> None:
    """The first command of a new user ends with exit 0 and one line that says what happened."""
    done = await Shell(tmp_path).run("run", "hello")
    assert done.status == 0, done.err
    assert "hello completed" in done.out.splitlines()[-1]


async def test_the_json_of_a_run_has_the_promised_shape(tmp_path: Path) -> None:
    """`run --json` prints one object with exactly the fields of the contract."""
    done = await Shell(tmp_path).run("run", "hello", "--json", "--input", '{"name": "Ada"}')
    assert set(done.value) == {
        *("instance_id", "sequence", "state", "blocked", "failure", "outputs", "started_at", "ended_at", "replayed"),
    }
    assert done.value["sequence"] == {"name": "hello", "version": 1}
    assert (done.value["state"], done.value["blocked"], done.value["failure"]) == ("completed", False, None)
    assert "Ada" in json.dumps(done.value["outputs"])


async def test_a_second_start_with_a_key_follows_the_first(tmp_path: Path) -> None:
    """The same key gives the same run; the same key with another input is a conflict."""
    shell = Shell(tmp_path)
    first = await shell.run("run", "hello", "--key", "k", "--json")
    second = await shell.run("run", "hello", "--key", "k", "--json")
    assert second.value["instance_id"] == first.value["instance_id"]
    assert (first.value["replayed"], second.value["replayed"]) == (False, True)
    other = await shell.run("run", "hello", "--key", "k", "--set", "name=Bob")
    assert other.status == 7
    assert "data" in other.err


async def test_a_failed_run_is_exit_1_and_can_be_retried(tmp_path: Path) -> None:
    """A failure names its step; `instances retry` runs the failed step again and keeps what is done."""
    shell = Shell(tmp_path)
    steps = [
        {"type": "step", "id": "first", "handler": "set_state", "params": {"key": "n", "value": 1}},
        {"type": "step", "id": "look", "handler": "command", "params": {"argv": ["test", "-e", "there"]}},
    ]
    (tmp_path / "s.json").write_text(json.dumps({"name": "s", "blocks": steps}))
    failed = await shell.run("run", "s.json")
    assert failed.status == 1
    assert "look" in failed.out
    (listed,) = (await shell.run("instances", "list", "--json")).value
    assert listed["state"] == "failed"
    (tmp_path / "there").touch()
    retried = await shell.run("instances", "retry", listed["id"], "--yes")
    assert retried.status == 0, retried.err
    outputs = await shell.run("instances", "outputs", listed["id"], "--json")
    assert set(outputs.value) == {"first", "look"}


BAD_LINES = [
    (["run", "helo"], 6, "did you mean 'hello'?"),
    (["run", "nothing.json"], 6, "there is no file nothing.json"),
    (["run", "hello@7"], 6, "no version 7"),
    (["run", "hello", "--input", "{"], 2, "--input"),
    (["run", "hello", "--input", '{"a": NaN}'], 2, "NaN"),
    (["run", "hello", "--input", "@missing.json"], 2, "missing.json"),
    (["run", "hello", "--set", "novalue"], 2, "novalue"),
    (["rnu"], 2, "did you mean 'run'?"),
    (["run"], 2, "SEQUENCE"),
    (["run", "hello", "--timeout", "soon"], 2, "soon"),
    (["instances", "show", "0123"], 6, "there is no database"),
    (["effects", "list"], 6, "there is no database"),
    (["db", "check"], 6, "there is no database"),
    (["handlers", "show", "http_reqest"], 6, "did you mean 'http_request'?"),
    (["validate", "nothing.json"], 6, "nothing.json"),
]


@pytest.mark.parametrize(("arguments", "status", "text"), BAD_LINES, ids=lambda value: str(value)[:40])
async def test_a_wrong_line_is_one_clear_error_and_changes_nothing(
    tmp_path: Path, arguments: list[str], status: int, text: str
) -> None:
    """Each mistake has its exit status, one line with the way out, and leaves no file behind."""
    done = await Shell(tmp_path).run(*arguments)
    assert done.status == status, done.err
    assert text in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


async def test_an_error_as_json_has_code_message_hint_details(tmp_path: Path) -> None:
    """With --json an error is an object on standard output."""
    done = await Shell(tmp_path).run("run", "helo", "--json")
    assert done.status == 6
    assert set(done.value["error"]) == {"code", "message", "hint", "details"}


async def test_what_is_not_built_is_refused_by_name_before_anything_runs(tmp_path: Path) -> None:
    """A document with a part that this version cannot run is refused at start; nothing is skipped."""
    shell = Shell(tmp_path)
    blocks = [
        {"type": "step", "id": "a", "handler": "noop"},
        {"type": "parallel", "id": "both", "branches": [[{"type": "step", "id": "b", "handler": "noop"}]]},
        {"type": "step", "id": "c", "handler": "noop", "delay": {"duration": 1000}},
    ]
    (tmp_path / "s.json").write_text(json.dumps({"name": "s", "blocks": blocks}))
    done = await shell.run("run", "s.json")
    assert done.status == 2, done.err
    assert "'both'" in done.err
    assert "parallel" in done.err
    assert (await shell.run("validate", "s.json")).status == 0


async def test_a_home_that_is_not_set_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """Without HOME and without --db no file is made somewhere by chance."""
    shell = Shell(tmp_path)
    del shell.environment["ORCH8_LOCAL_DB"]
    shell.environment["HOME"] = ""
    done = await shell.run("run", "hello")
    assert done.status == 2
    assert "--db" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("locale", ["C", "POSIX"])
async def test_a_plain_locale_spoils_nothing(tmp_path: Path, locale: str) -> None:
    """Without UTF-8 the signs are ASCII or escaped, and no trace is shown."""
    shell = Shell(tmp_path, LC_ALL=locale, PYTHONUTF8="0", PYTHONIOENCODING="ascii", PYTHONCOERCECLOCALE="0")
    done = await shell.run("run", "hello", "--set", "name=Zoë")
    assert done.status == 0, done.err
    assert "completed" in done.out
    assert done.out.isascii()


async def test_a_reader_that_goes_away_is_silence(tmp_path: Path) -> None:
    """A pipe that is closed on the other side gives no trace; the run itself is finished all the same."""
    shell = Shell(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    import asyncio
    import sys

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orch8_local", "sequences", "list"),
        stdout=writer,
        stderr=asyncio.subprocess.PIPE,
        cwd=tmp_path,
        env=shell.environment,
    )
    os.close(writer)
    _, err = await process.communicate()
    assert process.returncode == 141
    assert err == b""


async def test_colour_is_for_terminals_only(tmp_path: Path) -> None:
    """No escape sequence reaches a pipe."""
    shell = Shell(tmp_path)
    await shell.run("run", "hello")
    for words in (["run", "hello"], ["instances", "list"], ["doctor"], ["sequences", "list"]):
        done = await shell.run(*words)
        assert "\x1b" not in done.out + done.err, words
