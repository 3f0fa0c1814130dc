"""What the engine promises about an action on the outside, each case with the real database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orch8_local.engine.api import Command
from orch8_local.engine.engine import Engine
from orch8_local.engine.shared import EngineLimits
from orch8_local.errors import Conflict, InputError, NotAllowed
from orch8_local.world import CrashPoint, real_world
from tests.engine.outside import (
    RETRY,
    Outside,
    document,
    engine_on,
    resolve,
    results,
    run,
    start,
    states,
    step,
)


async def test_a_confirmed_action_is_one_committed_receipt_with_the_output(tmp_path: Path) -> None:
    """A confirmed action leaves one committed receipt that holds the very output of the step."""
    outside = Outside("ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance = await run(engine, document(step("a", params={"n": 1})))
        view = await engine.views.instance(instance.id)
        assert instance.state == "completed"
        (receipt,) = view.receipts
        assert receipt.state == "committed"
        assert receipt.provider_receipt_id == "r-1"
        assert receipt.output == (await results(engine, instance.id))["a"]
        assert outside.done == [{"n": 1}]


async def test_an_ambiguous_outcome_is_never_retried(tmp_path: Path) -> None:
    """A lost answer stops the run as blocked whatever the retry policy says; nothing is sent again."""
    outside = Outside("lost")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance = await run(engine, document(step("a", retry=RETRY), step("b")))
        assert (instance.state, instance.is_blocked) == ("failed", True)
        assert instance.failure is not None
        assert instance.failure.effect_ids == tuple(r.id for r in (await engine.views.instance(instance.id)).receipts)
        assert await states(engine, instance.id) == ["unknown"]
        assert outside.n_calls == 1


@pytest.mark.parametrize("word", ["early", "refused"])
async def test_what_is_proved_unsent_is_retried(tmp_path: Path, word: str) -> None:
    """A refused or unsent attempt is abandoned with evidence and retried under the policy."""
    outside = Outside(word, word, "ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance = await run(engine, document(step("a", retry=RETRY)))
        assert instance.state == "completed"
        assert await states(engine, instance.id) == ["abandoned", "abandoned", "committed"]
        assert len(outside.done) == 1
        assert len(set(outside.keys)) == 1


async def test_retries_end_at_max_attempts_in_all(tmp_path: Path) -> None:
    """`max_attempts` is the total number of executions, and no receipt is left unresolved."""
    outside = Outside(*["refused"] * 5)
    async with engine_on(tmp_path / "db", outside) as engine:
        instance = await run(engine, document(step("a", retry=RETRY)))
        assert instance.state == "failed"
        assert not instance.is_blocked
        assert outside.n_calls == 3
        assert (await engine.views.backlog()).n_unresolved == 0


async def test_a_rejection_fails_the_step_at_once(tmp_path: Path) -> None:
    """A rejected action is a permanent failure, with the reason kept on the run."""
    outside = Outside("rejected")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance = await run(engine, document(step("a", retry=RETRY)))
        assert instance.failure is not None
        assert instance.failure.kind == "step_failed"
        assert instance.failure.details == {"status": 402}
        assert outside.n_calls == 1


async def test_resolving_as_committed_goes_on_with_the_given_output(tmp_path: Path) -> None:
    """After 'it happened' the run goes on with the output that was given, and nothing is sent again."""
    outside = Outside("lost", "ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        text = document(step("a"), step("b", params={"from_a": "{{ outputs.a.receipt }}"}))
        blocked = await run(engine, text)
        assert blocked.failure is not None
        result = await resolve(
            engine, blocked.failure.effect_ids[0], "committed", output={"receipt": "r-9"}, has_output=True
        )
        assert result["instance_state"] == "scheduled"
        done = await engine.wait_until_stopped(blocked.id)
        assert done.state == "completed"
        assert outside.done[1] == {"from_a": "r-9"}
        assert await states(engine, done.id) == ["committed", "committed"]


async def test_resolving_as_abandoned_then_retry_sends_exactly_one_more_with_the_same_key(
    tmp_path: Path,
) -> None:
    """'It did not happen, try again' sends one more attempt of the same intent under the same key."""
    outside = Outside("lost", "ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        blocked = await run(engine, document(step("a")))
        assert blocked.failure is not None
        await resolve(engine, blocked.failure.effect_ids[0], "abandoned", then="retry")
        done = await engine.wait_until_stopped(blocked.id)
        assert done.state == "completed"
        assert outside.n_calls == 2
        assert len(set(outside.keys)) == 1
        assert await states(engine, done.id) == ["abandoned", "committed"]


async def test_resolving_as_abandoned_without_attempts_left_is_a_step_error(tmp_path: Path) -> None:
    """'It did not happen' with no attempt left fails the step; nothing is sent."""
    outside = Outside("lost")
    async with engine_on(tmp_path / "db", outside) as engine:
        blocked = await run(engine, document(step("a")))
        assert blocked.failure is not None
        await resolve(engine, blocked.failure.effect_ids[0], "abandoned")
        ended = await engine.wait_until_stopped(blocked.id)
        assert (ended.state, ended.is_blocked) == ("failed", False)
        assert outside.n_calls == 1


async def test_resolving_as_compensated_is_a_real_failure(tmp_path: Path) -> None:
    """'It happened and was undone' fails the step as effect_compensated."""
    outside = Outside("lost")
    async with engine_on(tmp_path / "db", outside) as engine:
        blocked = await run(engine, document(step("a")))
        assert blocked.failure is not None
        await resolve(engine, blocked.failure.effect_ids[0], "compensated")
        ended = await engine.wait_until_stopped(blocked.id)
        assert ended.failure is not None
        assert ended.failure.kind == "effect_compensated"


async def test_resolving_with_stay_leaves_the_run_stopped_until_a_retry(tmp_path: Path) -> None:
    """`--then stay` settles the effect and not the run; a later retry goes on from there without a send."""
    outside = Outside("lost")
    async with engine_on(tmp_path / "db", outside) as engine:
        blocked = await run(engine, document(step("a")))
        assert blocked.failure is not None
        await resolve(engine, blocked.failure.effect_ids[0], "committed", output=1, has_output=True, then="stay")
        stopped = await engine.wait_until_stopped(blocked.id)
        assert (stopped.state, stopped.is_blocked) == ("failed", False)
        await engine.submit(Command("r", "retry", {"instance_id": blocked.id}))
        done = await engine.wait_until_stopped(blocked.id)
        assert done.state == "completed"
        assert outside.n_calls == 1


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("committed", {"evidence": {"note": "short"}, "output": None, "has_output": True}),
        ("committed", {"evidence": {"note": "a note that is long enough to count"}}),
        ("abandoned", {"evidence": {"note": "a note that is long enough to count"}}),
        ("compensated", {"evidence": {}}),
        ("dispatched", {"evidence": {}}),
    ],
)
async def test_a_resolution_without_evidence_is_refused(tmp_path: Path, target: str, arguments: dict[str, Any]) -> None:
    """Every answer needs its evidence; a refused resolution changes nothing."""
    async with engine_on(tmp_path / "db", Outside("lost")) as engine:
        blocked = await run(engine, document(step("a")))
        assert blocked.failure is not None
        effect_id = blocked.failure.effect_ids[0]
        with pytest.raises(InputError):
            await engine.submit(Command("x", "resolve", {"effect_id": effect_id, "target": target, **arguments}))
        assert (await engine.views.effect(effect_id)).state == "unknown"


async def test_nothing_is_applied_twice(tmp_path: Path) -> None:
    """A second resolution of the same effect is a conflict, and the first one stands."""
    async with engine_on(tmp_path / "db", Outside("lost")) as engine:
        blocked = await run(engine, document(step("a")))
        assert blocked.failure is not None
        effect_id = blocked.failure.effect_ids[0]
        await resolve(engine, effect_id, "committed", output=1, has_output=True)
        with pytest.raises(Conflict):
            await resolve(engine, effect_id, "abandoned")
        assert (await engine.views.effect(effect_id)).state == "committed"


async def test_a_blocked_run_cannot_be_retried(tmp_path: Path) -> None:
    """A retry of a blocked run is refused, naming what is open."""
    outside = Outside("lost")
    async with engine_on(tmp_path / "db", outside) as engine:
        blocked = await run(engine, document(step("a")))
        with pytest.raises(Conflict) as refusal:
            await engine.submit(Command("r", "retry", {"instance_id": blocked.id}))
        assert blocked.failure is not None
        assert refusal.value.details["effect_ids"] == list(blocked.failure.effect_ids)
        assert outside.n_calls == 1


async def test_a_step_that_times_out_after_sending_is_listened_to(tmp_path: Path) -> None:
    """A time-out after the first byte blocks the run; the late answer is evidence and carries it on."""
    outside = Outside("hang")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance_id = await start(engine, document(step("a", timeout=20), step("b", "noop")))
        await outside.is_hanging.wait()
        while not engine.is_listening(instance_id):
            await asyncio.sleep(0)
        outside.answer.set()
        done = await engine.wait_until_stopped(instance_id)
        assert done.state == "completed"
        assert await states(engine, instance_id) == ["committed"]
        events = await engine.views.events(instance_id=instance_id)
        assert [e.to_state for e in events if e.effect_id] == [
            "planned",
            "prepared",
            "dispatched",
            "unknown",
            "committed",
        ]
        assert next(e for e in events if e.to_state == "committed").reason == "late_response"


async def test_a_late_answer_after_a_resolution_is_a_contradiction_on_the_timeline(tmp_path: Path) -> None:
    """A success that comes in for an effect resolved as 'did not happen' is not swallowed."""
    outside = Outside("hang", "ok")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance_id = await start(engine, document(step("a", timeout=20)))
        await outside.is_hanging.wait()
        while await states(engine, instance_id) != ["unknown"]:
            await asyncio.sleep(0)
        effect_id = (await engine.views.instance(instance_id)).receipts[0].id
        await resolve(engine, effect_id, "abandoned", then="stay")
        outside.answer.set()
        await engine.wait_until_stopped(instance_id)
        kinds = [e.kind for e in await engine.views.events(effect_id=effect_id)]
        assert kinds[-1] == "effect.contradiction"
        assert (await engine.views.effect(effect_id)).state == "abandoned"


async def test_a_drain_settles_what_is_in_flight_as_unknown(tmp_path: Path) -> None:
    """An engine that stops while an answer is out records that it does not know, and blocks the run."""
    outside = Outside("hang")
    async with engine_on(tmp_path / "db", outside, limits=EngineLimits(grace_s=0)) as engine:
        instance_id = await start(engine, document(step("a")))
        await outside.is_hanging.wait()
    async with engine_on(tmp_path / "db", Outside()) as engine:
        instance = await engine.wait_until_stopped(instance_id)
        assert instance.is_blocked
        assert await states(engine, instance_id) == ["unknown"]
        assert outside.n_calls == 1


async def test_a_drain_lets_the_step_end_and_starts_no_further_one(tmp_path: Path) -> None:
    """A drain waits for the answer in flight, stores it, and leaves the next step for the next start."""
    first, second = Outside("hang"), Outside("ok")
    engine = await Engine.open(tmp_path / "db", handlers=[first.handler])
    await engine.start()
    instance_id = await start(engine, document(step("a"), step("b")))
    await first.is_hanging.wait()
    drain = asyncio.ensure_future(engine.drain(5))
    first.answer.set()
    await drain
    await engine.close()
    assert first.n_calls == 1
    async with engine_on(tmp_path / "db", second) as engine:
        done = await engine.wait_until_stopped(instance_id)
        assert done.state == "completed"
        assert second.n_calls == 1


async def test_output_that_is_not_json_still_commits(tmp_path: Path) -> None:
    """A success is never turned into unknown: a NaN in the output fails the step after the commit."""
    from orch8_local.handlers.base import handler

    @handler("nan")
    async def nan(ctx: object, params: object) -> object:
        return {"x": [1.0, float("nan")]}

    engine = await Engine.open(tmp_path / "db", handlers=[nan])
    async with engine:
        instance = await run(engine, document(step("a", "nan", retry=RETRY)))
        assert instance.failure is not None
        assert "$.x[1]" in instance.failure.message
        assert await states(engine, instance.id) == ["committed"]


async def test_a_stop_that_comes_while_a_step_is_prepared_lets_nothing_out(tmp_path: Path) -> None:
    """A step whose receipt is being written when the engine stops at once sends nothing, now or later by itself."""
    outside = Outside("ok")
    stopped = asyncio.Event()

    class Stopping:
        def reach(self, point: str) -> None:
            if point == CrashPoint.AFTER_PREPARE and not stopped.is_set():
                stopped.set()
                engine.stop_waiting()

    engine = await Engine.open(
        tmp_path / "db", handlers=[outside.handler], world=replace(real_world(), crash=Stopping())
    )
    async with engine:
        instance_id = await start(engine, document(step("a")))
        await stopped.wait()
        await engine.drain()
        assert outside.n_calls == 0
        assert await states(engine, instance_id) == ["prepared"]
    async with engine_on(tmp_path / "db", outside) as engine:
        assert (await engine.wait_until_stopped(instance_id)).state == "completed"
        assert outside.done
        assert await states(engine, instance_id) == ["committed"]


async def test_an_operator_cannot_touch_what_is_being_sent(tmp_path: Path) -> None:
    """A dispatch that is live in this process is settled by its answer alone."""
    outside = Outside("hang")
    async with engine_on(tmp_path / "db", outside) as engine:
        instance_id = await start(engine, document(step("a")))
        await outside.is_hanging.wait()
        effect_id = (await engine.views.instance(instance_id)).receipts[0].id
        with pytest.raises((NotAllowed, Conflict)):
            await resolve(engine, effect_id, "committed", output=1, has_output=True)
        outside.answer.set()
        assert (await engine.wait_until_stopped(instance_id)).state == "completed"
