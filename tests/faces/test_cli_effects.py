"""The point of it all, as a person at a terminal lives through it: processes, kill -9, a real provider."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from orch8_local.testing.provider import Provider, Reply
from tests.faces.processes import Shell, line_with

EVIDENCE = "looked into the provider's ledger by the key"


def words(url: str, key: str = "order-7") -> list[str]:
    return ["run", "charge-demo", "--key", key, "--set", f"config.base_url={url}"]


async def killed_in_the_middle(shell: Shell, provider: Provider) -> None:
    """Start a charge and kill the process when the provider has it and does not answer."""
    async with shell.start(*words(provider.url)) as process:
        await provider.wait_for("applied")
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def test_a_lost_answer_blocks_until_it_is_recorded_and_is_never_sent_again(tmp_path: Path) -> None:
    """kill -9 after the request: exit 3, `unknown`, one request; recorded as committed, the run completes with that."""
    shell = Shell(tmp_path)
    async with Provider([Reply("hang", is_applied=True)]) as provider:
        await killed_in_the_middle(shell, provider)
        again = await shell.run(*words(provider.url), "--json")
        assert again.status == 3, again.err
        assert again.value["state"] == "failed"
        assert again.value["blocked"] is True
        assert again.value["failure"]["kind"] == "effect_blocked"
        (receipt,) = (await shell.run("effects", "list", "--unresolved", "--json")).value
        assert receipt["state"] == "unknown"
        assert [receipt["id"]] == again.value["failure"]["effect_ids"]
        assert (await shell.run("effects", "check")).status == 3
        assert len(provider.requests()) == 1
        output = {"status": 200, "body": {"receipt_id": "r-1"}}
        resolved = await shell.run(
            *("effects", "resolve", receipt["id"][:8], "--as", "committed", "--provider-receipt", "r-1"),
            *("--evidence", EVIDENCE, "--output", json.dumps(output), "--json"),
        )
        assert resolved.status == 0, resolved.err
        assert resolved.value["state"] == "completed"
        assert resolved.value["outputs"]["charge"] == output
        assert len(provider.requests()) == 1
        assert (await shell.run("effects", "check")).status == 0
        shown = (await shell.run("effects", "show", receipt["id"], "--json")).value
        assert [event["to"] for event in shown["events"]] == [
            *("planned", "prepared", "dispatched", "unknown", "committed"),
        ]
        assert shown["events"][-1]["actor"].startswith("operator:")


async def test_what_did_not_happen_is_sent_once_more_under_the_same_key(tmp_path: Path) -> None:
    """`--as abandoned --then retry` sends exactly one more request, with the key of the first."""
    shell = Shell(tmp_path)
    async with Provider([Reply("drop_before_apply")]) as provider:
        first = await shell.run(*words(provider.url))
        assert first.status == 3
        assert "effects resolve" in first.out + first.err
        (receipt,) = (await shell.run("effects", "list", "--unresolved", "--json")).value
        resolved = await shell.run(
            *("effects", "resolve", receipt["id"], "--as", "abandoned", "--then", "retry"),
            *("--evidence", EVIDENCE, "--searched", "key,window"),
        )
        assert resolved.status == 0, resolved.err
        assert len(provider.requests()) == 2
        assert len({request.key for request in provider.requests()}) == 1
        assert provider.applied(receipt["sent_key"]) == 1


async def test_a_refused_connection_is_tried_until_somebody_listens(tmp_path: Path) -> None:
    """A run whose service is away waits and completes when the service comes; nothing is left unresolved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shell = Shell(tmp_path)
    async with shell.start(*words(f"http://127.0.0.1:{port}"), "--plain") as process:
        await line_with(process.stdout, "tries again")
        async with Provider(port=port) as provider:
            assert await process.wait() == 0
            assert provider.applied() == 1
    assert (await shell.run("effects", "list", "--unresolved", "--json")).value == []


async def test_a_resolution_goes_through_the_engine_that_runs(tmp_path: Path) -> None:
    """While `up` owns the database another process records the outcome through it, and the run goes on there."""
    shell = Shell(tmp_path)
    async with Provider([Reply("apply_then_drop")]) as provider, shell.start("up") as engine:
        await line_with(engine.stderr, "engine is up")
        first = await shell.run(*words(provider.url), "--json")
        assert first.status == 3, first.err
        effect_id = first.value["failure"]["effect_ids"][0]
        resolved = await shell.run(
            *("effects", "resolve", effect_id, "--as", "committed", "--evidence", EVIDENCE),
            *("--output", '{"status": 200, "body": null}', "--json"),
        )
        assert resolved.status == 0, resolved.err
        assert resolved.value["state"] == "completed"
        assert len(provider.requests()) == 1
        engine.send_signal(signal.SIGTERM)
        assert await engine.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_lets_the_step_end_and_loses_nothing(tmp_path: Path, number: int) -> None:
    """Ctrl-C and SIGTERM drain: the request under way gets its answer, and the next start goes on behind it."""
    shell = Shell(tmp_path)
    async with Provider([Reply("hold")]) as provider:
        async with shell.start(*words(provider.url)) as process:
            await provider.wait_for("received")
            process.send_signal(number)
            await line_with(process.stderr, "stopping")
            provider.release()
            assert await process.wait() == 130
        assert (await shell.run("effects", "check")).status == 0
        after = await shell.run(*words(provider.url), "--json")
        assert after.status == 0, after.err
        assert len(provider.requests()) == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "--as is missing"),
        (["--as", "committed", "--evidence", EVIDENCE], "output is missing"),
        (["--as", "committed", "--output", "null"], "evidence is too thin"),
        (["--as", "committed", "--evidence", EVIDENCE, "--output", "{nope}"], "--output"),
        (["--as", "abandoned", "--evidence", EVIDENCE], "searched"),
        (["--as", "abandoned", "--evidence", EVIDENCE, "--searched", "kye"], "kye"),
        (["--as", "maybe"], "maybe"),
    ],
)
async def test_thin_evidence_settles_nothing(tmp_path: Path, arguments: list[str], what: str) -> None:
    """A resolution without what it needs is refused with one line, exit 2, and the effect stays unknown."""
    shell = Shell(tmp_path)
    async with Provider([Reply("apply_then_drop")]) as provider:
        assert (await shell.run(*words(provider.url))).status == 3
    (receipt,) = (await shell.run("effects", "list", "--json")).value
    refused = await shell.run("effects", "resolve", receipt["id"], *arguments)
    assert refused.status == 2
    assert what in refused.err
    assert refused.err.startswith("error: ")
    assert refused.err.count("\n") == 1
    (after,) = (await shell.run("effects", "list", "--json")).value
    assert (after["state"], after["version"]) == ("unknown", receipt["version"])


async def test_the_demonstration_shows_what_it_promises(tmp_path: Path) -> None:
    """`demo` ends well, and the provider has seen one request."""
    shell = Shell(tmp_path)
    shown = await shell.run("demo")
    assert shown.status == 0, shown.err
    assert "1 request(s), 1 charge(s)" in shown.out
    assert "unknown" in shown.out
    assert not shell.database.exists()
