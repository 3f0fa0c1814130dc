"""What the engine promises about runs: disks that fill up, waits, cancels, guards, crash loops, commands of others."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orch8_local import inbox
from orch8_local.engine.api import Command
from orch8_local.engine.engine import Engine
from orch8_local.engine.shared import EngineLimits
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import Conflict, ContentConflict, DiskFull, NotBuilt, NotFound
from orch8_local.testing.invariants import Phase, check
from tests.engine.outside import RETRY, Outside, document, engine_on, resolve, results, run, start, states, step

Json = Any
SLOW = {"max_attempts": 5, "initial_backoff": 3_600_000, "max_backoff": 3_600_000}


async def set_page_limit(engine: Engine, n_more: int | None) -> None:
    """Let the database grow by so many pages and no further, or by as many as it likes."""
    assert engine._database is not None

    def limit(connection: sqlite3.Connection) -> None:
        n_pages = connection.execute("PRAGMA page_count").fetchone()[0]
        most = 2**30 if n_more is None else n_pages + n_more
        connection.execute(f"PRAGMA max_page_count = {most}")

    await engine._database.writer.maintain(limit)


def has_trouble(engine: Engine) -> bool:
    return engine.trouble is not None


async def state_of(engine: Engine, instance_id: str) -> str:
    return str((await engine.views.instance(instance_id)).instance.state)


async def until_state(engine: Engine, instance_id: str, *wanted: str) -> None:
    while await state_of(engine, instance_id) not in wanted:
        await asyncio.sleep(0)


async def test_an_answer_that_meets_a_full_disk_is_kept_until_there_is_room(tmp_path: Path) -> None:
    """The disk fills up between the request and its answer: the answer waits, and is written when there is space."""
    outside = Outside("hang")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance_id = await start(engine, document(step("a", params={"text": "x" * 200_000})))
        await outside.is_hanging.wait()
        await set_page_limit(engine, 0)
        outside.answer.set()
        while not has_trouble(engine):
            await asyncio.sleep(0)
        assert await states(engine, instance_id) == ["dispatched"]
        await set_page_limit(engine, None)
        assert (await engine.wait_until_stopped(instance_id)).state == "completed"
        assert await states(engine, instance_id) == ["committed"]
        assert not has_trouble(engine)
    assert len(outside.done) == 1


@pytest.mark.parametrize("transaction", [Transaction.T0_PREPARE, Transaction.T1_DISPATCH])
async def test_nothing_is_sent_while_its_receipt_finds_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transaction: Transaction
) -> None:
    """Before the receipt is on the disk there is no request; when there is room the run goes on by itself."""
    outside = Outside("ok")
    sent_while_full: list[int] = []
    async with engine_on(tmp_path / "db", outside, limits=EngineLimits(first_disk_wait_s=0.001)) as engine:
        writer = engine._shared.writer
        real = writer.transact

        async def transact(fn: Any, *, name: str) -> Any:
            if name == transaction and len(sent_while_full) < 5:
                sent_while_full.append(len(outside.done))
                raise DiskFull("no room")
            return await real(fn, name=name)

        monkeypatch.setattr(writer, "transact", transact)
        done = await run(engine, document(step("a")))
        assert done.state == "completed"
    assert sent_while_full == [0] * 5
    assert len(outside.done) == 1


async def test_a_timer_outlives_the_process(tmp_path: Path) -> None:
    """A run that waits is on the disk with its time; another process takes it up and completes it once."""
    path = tmp_path / "db"
    text = document(step("w", "sleep", params={"duration_ms": 300}), step("a"))
    outside = Outside("ok")
    async with engine_on(path, outside) as engine:
        instance_id = await start(engine, text)
        await until_state(engine, instance_id, "waiting")
    assert outside.n_calls == 0
    async with engine_on(path, outside) as engine:
        assert (await engine.wait_until_stopped(instance_id)).state == "completed"
    assert outside.n_calls == 1


async def test_a_run_that_waits_for_a_retry_can_be_cancelled_at_once(tmp_path: Path) -> None:
    """Cancel ends a waiting run without another attempt, and a second cancel is a conflict."""
    outside = Outside("refused")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance_id = await start(engine, document(step("a", retry=SLOW)))
        await until_state(engine, instance_id, "waiting")
        result = await engine.submit(Command("c", "cancel", {"instance_id": instance_id}))
        assert result["state"] == "cancelled"
        with pytest.raises(Conflict):
            await engine.submit(Command("d", "cancel", {"instance_id": instance_id}))
    assert outside.n_calls == 1


async def test_a_cancel_lets_the_step_under_way_end_and_starts_no_further_one(tmp_path: Path) -> None:
    """A request that is out is listened to; its receipt commits, the next step never runs."""
    outside = Outside("hang", "ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance_id = await start(engine, document(step("a"), step("b")))
        await outside.is_hanging.wait()
        await engine.submit(Command("c", "cancel", {"instance_id": instance_id}))
        outside.answer.set()
        assert (await engine.wait_until_stopped(instance_id)).state == "cancelled"
        assert await states(engine, instance_id) == ["committed"]
    assert outside.n_calls == 1


async def test_a_blocked_run_is_not_cancelled_before_its_effect_is_settled(tmp_path: Path) -> None:
    """Cancelling a run whose effect is unknown is refused: the question would be buried."""
    outside = Outside("lost")
    async with engine_on(tmp_path / "db", outside) as engine:
        blocked = await run(engine, document(step("a")))
        with pytest.raises(Conflict, match="blocked"):
            await engine.submit(Command("c", "cancel", {"instance_id": blocked.id}))
        assert (await engine.views.instance(blocked.id)).instance.is_blocked


async def test_one_key_is_one_run(tmp_path: Path) -> None:
    """The same key with the same content gives the run of the first; with another content it is refused."""
    outside = Outside("ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        first = await start(engine, document(step("a")), {"n": 1}, key="k")
        assert await start(engine, document(step("a")), {"n": 1}, key="k") == first
        with pytest.raises(ContentConflict, match=r"data\.n"):
            await start(engine, document(step("a")), {"n": 2}, key="k")
        with pytest.raises(ContentConflict, match="sequence"):
            await start(engine, document(step("b")), {"n": 1}, key="k")
        await engine.wait_until_stopped(first)
    assert outside.n_calls == 1


async def test_guards_decide_and_their_errors_fail_the_step(tmp_path: Path) -> None:
    """A false `when` skips, a true one runs; both see data and outputs."""
    outside = Outside("ok", "ok")
    text = document(
        step("a", when="data.n == 1"), step("b", when="data.n == 2"), step("c", when="outputs.a.params == null")
    )
    async with engine_on(tmp_path / "db", outside) as engine:
        done = await engine.wait_until_stopped(await start(engine, text, {"n": 1}))
        assert done.state == "completed"
        view = await engine.views.instance(done.id)
        assert {node.block_id: str(node.state) for node in view.nodes} == {
            "a": "completed",
            "b": "skipped",
            "c": "completed",
        }


@pytest.mark.parametrize(
    ("policy", "n_calls"),
    [
        ({}, 3),
        ({"retry_if": "data._error.details.status == 503"}, 3),
        ({"retry_if": "data._error.details.status == 500"}, 1),
        ({"non_retryable_codes": ["503"]}, 1),
        ({"max_attempts": 1}, 1),
    ],
)
async def test_the_retry_policy_decides_about_refusals(tmp_path: Path, policy: dict[str, Json], n_calls: int) -> None:
    """`retry_if`, `non_retryable_codes` and `max_attempts` as the format has them; the last failure stands."""
    outside = Outside("refused", "refused", "refused")
    async with engine_on(tmp_path / "db", outside) as engine:
        failed = await run(engine, document(step("a", retry={**RETRY, **policy})))
        assert failed.state == "failed"
        assert not failed.is_blocked
    assert outside.n_calls == n_calls


async def test_a_run_that_takes_the_program_down_again_and_again_is_parked(tmp_path: Path) -> None:
    """Found running at the third start without a finished step, a run is set aside; a retry revives it."""
    path = tmp_path / "db"
    outside = Outside("ok", "ok")
    async with engine_on(path, outside, limits=EngineLimits(max_concurrent=1)) as engine:
        bad = await start(engine, document(step("w", "sleep", params={"duration_ms": 3_600_000}), step("a")))
        await until_state(engine, bad, "waiting")
    for n in range(3):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA recursive_triggers = ON")
            connection.execute(
                "UPDATE instances SET state = 'running', boot_id = 'dead', due_at_us = NULL WHERE id = ?", (bad,)
            )
        engine = await Engine.open(path, handlers=[outside.handler])
        try:
            assert await state_of(engine, bad) == ("paused" if n == 2 else "scheduled")
        finally:
            await engine.close()
    async with engine_on(path, outside) as engine:
        parked = (await engine.views.instance(bad)).instance
        assert parked.paused_reason == "crash_loop"
        assert (await run(engine, document(step("b")))).state == "completed"
        await engine.submit(Command("r", "retry", {"instance_id": bad}))
        await until_state(engine, bad, "waiting")


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"delay": {"duration": 1}}, "delay"),
        ({"cache_key": "x"}, "cache_key"),
        ({"wait_for_input": {}}, "wait_for_input"),
        ({"queue_name": "q"}, "queue_name"),
        ({"effect": {"mode": "idempotent", "key": "k"}}, "idempotent"),
        ({"compensation": {"handler": "act"}}, "compensation"),
        ({"cancellable": False}, "cancellable"),
    ],
)
async def test_a_field_that_is_not_built_is_refused_by_name(tmp_path: Path, more: dict[str, Json], name: str) -> None:
    """A step whose field would be ignored is not started."""
    async with engine_on(tmp_path / "db", Outside()) as engine:
        with pytest.raises(NotBuilt, match=name):
            await start(engine, document(step("a", **more)))
        assert await engine.views.instance_counts() == dict.fromkeys(await engine.views.instance_counts(), 0)


async def test_a_handler_that_nobody_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    """A typing error in a handler's name does not wait for a worker that never comes."""
    async with engine_on(tmp_path / "db", Outside()) as engine:
        with pytest.raises(NotFound, match="'atc'"):
            await start(engine, document(step("a", "atc")))


async def test_a_command_file_is_applied_once_and_its_refusal_is_told(tmp_path: Path) -> None:
    """Another process asks through the inbox: the answer is on record, also a refusal, and a file twice is one."""
    path = tmp_path / "db"
    outside = Outside("lost")
    async with engine_on(path, outside) as engine:
        blocked = await run(engine, document(step("a")))
        folder = inbox.inbox_folder(path)
        inbox.write_command(
            folder, Command("0" * 32, "cancel", {"instance_id": blocked.id}, actor="operator:ada"), at_us=1
        )
        await engine.take_commands()
        found = await engine.views.command_result("0" * 32)
        assert found is not None
        assert found[0] == "refused"
        inbox.write_command(
            folder, Command("0" * 32, "cancel", {"instance_id": blocked.id}, actor="operator:ada"), at_us=1
        )
        await engine.take_commands()
        assert await engine.views.command_result("0" * 32) == found
        effect_id = (await engine.views.instance(blocked.id)).receipts[0].id
        await resolve(engine, effect_id, "committed", output={"n": 1}, has_output=True)
        assert (await engine.wait_until_stopped(blocked.id)).state == "completed"
        assert await results(engine, blocked.id) == {"a": {"n": 1}}
    assert check(path, phase=Phase.CLOSED) == []


class HeldMark:
    """Keeps T1 from the writer until it is let go."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_held = asyncio.Event()
        self.go_on = asyncio.Event()
        writer = engine._shared.writer
        real = writer.transact

        async def transact(fn: Any, *, name: str) -> Any:
            if name == Transaction.T1_DISPATCH:
                self.is_held.set()
                await self.go_on.wait()
            return await real(fn, name=name)

        monkeypatch.setattr(writer, "transact", transact)


async def test_a_time_out_during_the_mark_sends_nothing_and_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step's time is over while its dispatch is being written: nothing follows the mark, and that is known."""
    outside = Outside("ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        mark = HeldMark(engine, monkeypatch)
        instance_id = await start(engine, document(step("a", timeout=10)))
        await mark.is_held.wait()
        (dispatch,) = engine._shared.live.values()
        while not dispatch.is_expired:
            await asyncio.sleep(0)
        mark.go_on.set()
        failed = await engine.wait_until_stopped(instance_id)
        assert failed.state == "failed"
        assert not failed.is_blocked
        assert await states(engine, instance_id) == ["abandoned"]
    assert outside.done == []


async def test_a_stop_during_the_mark_gives_the_run_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine stops while a dispatch is being written: nothing is sent, the next start does it once."""
    outside = Outside("ok", "ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        mark = HeldMark(engine, monkeypatch)
        instance_id = await start(engine, document(step("a")))
        await mark.is_held.wait()
        draining = asyncio.ensure_future(engine.drain(0))
        (dispatch,) = engine._shared.live.values()
        while not dispatch.is_expired:
            await asyncio.sleep(0)
        mark.go_on.set()
        await draining
        assert await states(engine, instance_id) == ["abandoned"]
        assert await state_of(engine, instance_id) == "scheduled"
    assert outside.done == []
    async with engine_on(tmp_path / "db", outside) as engine:
        assert (await engine.wait_until_stopped(instance_id)).state == "completed"
        assert await states(engine, instance_id) == ["abandoned", "committed"]
    assert len(outside.done) == 1
    assert len(set(outside.keys)) == 1


async def test_a_claim_under_way_at_a_drain_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was just taken up when the engine stops is scheduled again, not `running` with nobody there."""
    outside = Outside("ok")
    has_claimed, go_on = asyncio.Event(), asyncio.Event()
    async with engine_on(tmp_path / "db", outside) as engine:
        writer = engine._shared.writer
        real = writer.transact

        async def transact(fn: Any, *, name: str) -> Any:
            result = await real(fn, name=name)
            if name == Transaction.CLAIM and result[0]:
                has_claimed.set()
                await go_on.wait()
            return result

        monkeypatch.setattr(writer, "transact", transact)
        instance_id = await start(engine, document(step("a")))
        await has_claimed.wait()
        draining = asyncio.ensure_future(engine.drain(0))
        await asyncio.sleep(0)
        go_on.set()
        await draining
        assert await state_of(engine, instance_id) == "scheduled"
    assert outside.n_calls == 0
    assert check(tmp_path / "db", phase=Phase.CLOSED) == []
