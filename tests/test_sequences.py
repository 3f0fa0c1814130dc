"""The bundled sequences: each does on this machine, without a network, what it says."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from orch8_local.handlers.builtins import builtin_specs
from orch8_local.sequence.bundled import bundled_names, bundled_text
from orch8_local.sequence.document import inspect
from orch8_local.testing.provider import Provider, Reply
from tests.faces.processes import Shell

HANDLERS = {spec.name: spec.params for spec in builtin_specs()}


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_sequence_has_not_one_problem(name: str) -> None:
    """What ships is valid, without a warning, and described."""
    found = inspect(bundled_text(name), handlers=HANDLERS)
    assert found.problems == ()
    assert found.definition is not None
    assert found.definition.name == name
    assert found.definition.description


def test_these_five_are_bundled() -> None:
    """The documentation names five; a sixth needs a test here that runs it."""
    assert bundled_names() == ["charge-demo", "disk-check", "fetch-with-retry", "hello", "rotate-backups"]


async def test_hello_greets_and_remembers(tmp_path: Path) -> None:
    """The first command of a new user completes, and its state goes from step to step."""
    done = await Shell(tmp_path).run("run", "hello", "--set", "name=Ada", "--json")
    assert done.status == 0, done.out + done.err
    assert done.value["state"] == "completed"
    assert done.value["outputs"]["recall"]["value"] == "Hello, Ada!"


async def test_charge_demo_charges_once(tmp_path: Path) -> None:
    """Against the shipped provider: one request, one charge, its receipt shown."""
    async with Provider() as provider:
        words = ["run", "charge-demo", "--set", "order=o-7", "--set", f"config.base_url={provider.url}", "--json"]
        done = await Shell(tmp_path).run(*words)
        assert done.status == 0, done.out + done.err
        assert "o-7 is charged" in done.value["outputs"]["receipt"]["message"]
        assert len(provider.requests()) == 1


async def test_charge_demo_says_what_it_needs(tmp_path: Path) -> None:
    """Without a provider the first step fails and names how to start one; nothing is sent."""
    done = await Shell(tmp_path).run("run", "charge-demo")
    assert done.status == 1
    assert "orch8_local.testing.provider" in done.out + done.err


async def test_rotate_backups_packs_checks_and_keeps_the_newest(tmp_path: Path) -> None:
    """A folder becomes an archive beside the older ones, of which only the newest few stay."""
    papers, archive = tmp_path / "my papers", tmp_path / "archive"
    papers.mkdir()
    (papers / "a.txt").write_text("a")
    archive.mkdir()
    old = [f"backup-2020010{day}T000000Z-aaaaa{day}.tar.gz" for day in (1, 2, 3)]
    for name in [*old, "notes.txt"]:
        (archive / name).write_text("older")
    words = ["run", "rotate-backups", "--set", f"folder={papers}", "--set", f"into={archive}", "--set", "keep=2"]
    done = await Shell(tmp_path).run(*words)
    assert done.status == 0, done.out + done.err
    kept = sorted(path.name for path in archive.iterdir())
    assert kept[0] == old[2]
    assert kept[2:] == ["notes.txt"]
    with tarfile.open(archive / kept[1]) as made:
        assert "./a.txt" in made.getnames()


@pytest.mark.parametrize(
    ("folder", "into", "reason"),
    [("missing", "archive", "there is no folder"), ("papers", "papers/archive", "packed into themselves")],
)
async def test_rotate_backups_refuses_what_cannot_be_right(tmp_path: Path, folder: str, into: str, reason: str) -> None:
    """A folder that is not there, or an archive inside the folder: it fails with the reason, and makes nothing."""
    (tmp_path / "papers").mkdir()
    words = ["run", "rotate-backups", "--set", f"folder={tmp_path / folder}", "--set", f"into={tmp_path / into}"]
    done = await Shell(tmp_path).run(*words, "--json")
    assert done.status == 1
    assert reason in done.out + done.err
    assert not (tmp_path / into).exists()


async def test_disk_check_is_content_with_enough_space(tmp_path: Path) -> None:
    """Enough space completes and says how much there is."""
    done = await Shell(tmp_path).run("run", "disk-check", "--set", "min_free_mb=1", "--json")
    assert done.status == 0, done.out + done.err
    assert "MB are free at /" in done.value["outputs"]["report"]["message"]


async def test_disk_check_fails_with_a_reason_when_space_is_short(tmp_path: Path) -> None:
    """Too little space is a failure that says what there is and what was wanted."""
    done = await Shell(tmp_path).run("run", "disk-check", "--set", f"min_free_mb={10**9}")
    assert done.status == 1
    assert f"{10**9} MB are wanted" in done.out + done.err


async def test_fetch_with_retry_waits_for_a_service_that_is_busy(tmp_path: Path) -> None:
    """A service that is away at first is asked again until it answers."""
    script = [Reply("5xx_before_apply", status=503), Reply("answer", body="hello")]
    async with Provider(script) as provider:
        done = await Shell(tmp_path).run("run", "fetch-with-retry", "--set", f"config.base_url={provider.url}")
        assert done.status == 0, done.out + done.err
        assert len(provider.requests()) == 2
