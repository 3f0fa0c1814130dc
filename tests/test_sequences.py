"""The bundled sequences: each does on this machine, without a network, what it says."""

from __future__ import annotations

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


async def test_rotate_backups_packs_checks_and_keeps_the_newest(tmp_path: Path) -> None:
    """A folder becomes an archive beside the older ones, of which only the newest few stay."""
    shell = Shell(tmp_path)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.txt").write_text("a")
    (tmp_path / "archive").mkdir()
    words = ["run", "rotate-backups", "--set", f"folder={tmp_path / 'papers'}", "--set", f"into={tmp_path / 'archive'}"]
    done = await shell.run(*words)
    assert done.status == 0, done.out + done.err
    assert [path.suffix for path in (tmp_path / "archive").iterdir()] == [".gz"]


@pytest.mark.parametrize(("least_mb", "status"), [(1, 0), (10**9, 1)])
async def test_disk_check_fails_with_a_reason_when_space_is_short(tmp_path: Path, least_mb: int, status: int) -> None:
    """Enough space completes; too little fails, and says so."""
    done = await Shell(tmp_path).run("run", "disk-check", "--set", f"min_free_mb={least_mb}")
    assert done.status == status, done.out + done.err
    assert ("free" in done.out + done.err) is bool(status) or status == 0


async def test_fetch_with_retry_waits_for_a_service_that_is_busy(tmp_path: Path) -> None:
    """A service that is away at first is asked again until it answers."""
    script = [Reply("5xx_before_apply", status=503), Reply("answer", body="hello")]
    async with Provider(script) as provider:
        done = await Shell(tmp_path).run("run", "fetch-with-retry", "--set", f"config.base_url={provider.url}")
        assert done.status == 0, done.out + done.err
        assert len(provider.requests()) == 2


async def test_charge_demo_says_what_it_needs(tmp_path: Path) -> None:
    """Without a provider the first step fails and names how to start one; nothing is sent."""
    done = await Shell(tmp_path).run("run", "charge-demo")
    assert done.status == 1
    assert "orch8_local.testing.provider" in done.out + done.err
