"""`orch8-local demo`: the whole point in a minute, on loopback, in a folder that is gone afterwards.

Real processes and a real kill: the engine of the demonstration is this very program as a child. The
easy mistake: a staged ending; what the provider saw is counted by the provider, and if that is not
what is promised, the demonstration says so and fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orch8_local.cli.invocation import Invocation, common_options
from orch8_local.errors import Bug

if TYPE_CHECKING:
    from orch8_local.testing.provider import Provider, Reply

Json = Any
SCENARIOS = ("crash", "lost-answer", "refused", "offline")
LONGEST_S = 50.0
SEQUENCE = "charge-demo"


@click.command()
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    default="crash",
    show_default=True,
    help="crash: killed before the answer. lost-answer: the line is cut. refused: the provider says 503. "
    "offline: nobody listens yet.",
)
@click.option("--yes", is_flag=True, help="Do not wait for Return between the steps.")
@common_options
def demo(invocation: Invocation, scenario: str, yes: bool) -> int:
    """See the whole point in a minute, without a network.

    A payment provider on loopback, one charge, and something that goes wrong in the worst moment.
    Nothing leaves this machine, and nothing is left on it.
    """
    is_paced = not yes and not invocation.is_json and sys.stdin.isatty() and sys.stdout.isatty()
    with tempfile.TemporaryDirectory(prefix="orch8-demo-") as folder:
        return asyncio.run(_play(Stage(invocation, Path(folder), is_paced), scenario))


@dataclass(slots=True)
class Stage:
    """Where the demonstration plays. story: what `--json` gives."""

    invocation: Invocation
    folder: Path
    is_paced: bool
    story: list[dict[str, Json]] = field(default_factory=list)
    n_scenes: int = 0

    @property
    def database(self) -> Path:
        """The demonstration's own database."""
        return self.folder / "demo.db"

    async def scene(self, title: str, *lines: str) -> None:
        """Announce the next step; on a terminal wait for Return first."""
        from orch8_local.cli.screen import Cell, show_lines

        self.n_scenes += 1
        self.story.append({"scene": title})
        if self.invocation.is_json:
            return
        if self.is_paced and self.n_scenes > 1:
            with contextlib.suppress(EOFError):
                await asyncio.to_thread(input, "\n[Return] ")
        show_lines(["", Cell(f"{self.n_scenes}. {title}", "bold"), *(f"   {line}" for line in lines)])

    def say(self, text: str) -> None:
        """One line of the story."""
        self.story.append({"says": text})
        if not self.invocation.is_json:
            self.invocation.write(f"   {text}")
            sys.stdout.flush()

    async def run(self, *words: str, is_shown: bool = True) -> tuple[int, str]:
        """Run this program as a child, show what it prints, and return its exit status and its output."""
        is_shown = is_shown and not self.invocation.is_json
        if is_shown:
            self.invocation.write(f"   $ orch8-local {shlex.join(words)}")
            sys.stdout.flush()
        async with self.child(*words) as process:
            assert process.stdout is not None
            shown = []
            while line := (await process.stdout.readline()).decode("utf-8", "replace").rstrip():
                shown.append(line)
                if is_shown:
                    self.invocation.write(f"   │ {line}")
                    sys.stdout.flush()
            status = await process.wait()
        self.story.append({"command": list(words), "status": status, "output": shown})
        return status, "\n".join(shown)

    @contextlib.asynccontextmanager
    async def child(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """This program as a child on the demonstration's database; it never outlives the block."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ORCH8_LOCAL_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orch8_local", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**kept, "ORCH8_LOCAL_DB": str(self.database), "NO_COLOR": "1"},
            cwd=self.folder,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _play(stage: Stage, scenario: str) -> int:
    async with asyncio.timeout(None if stage.is_paced else LONGEST_S):
        provider = await {
            "crash": _crash,
            "lost-answer": _lost_answer,
            "refused": _refused,
            "offline": _offline,
        }[scenario](stage)
    charges = provider.applied()
    requests = len(provider.requests())
    await stage.scene("What the provider saw")
    stage.say(f"{requests} request(s), {charges} charge(s)")
    if charges != 1:
        raise Bug(f"the provider charged {charges} times", hint="this is a bug: please report it with the output")
    stage.story.append({"requests": requests, "charges": charges})
    if stage.invocation.is_json:
        stage.invocation.write_json({"scenario": scenario, "ok": True, "story": stage.story})
    return 0


def _words(provider: Provider) -> list[str]:
    return ["run", SEQUENCE, "--key", "demo", "--set", f"config.base_url={provider.url}"]


async def _open(stage: Stage, *script: Reply) -> Provider:
    from orch8_local.testing.provider import Provider

    provider = Provider(script)
    await provider.start()
    await stage.scene("A payment provider on loopback, and a sequence that charges a card once")
    stage.say(f"the provider listens on {provider.url} and counts what it does")
    return provider


async def _crash(stage: Stage) -> Provider:
    """The engine is killed after the provider has charged and before its answer came."""
    from orch8_local.testing.provider import Reply

    provider = await _open(stage, Reply("hang", is_applied=True))
    words = _words(provider)
    await stage.scene("The request goes out, the provider charges, and the engine is killed (kill -9)")
    stage.say(f"$ orch8-local {shlex.join(words)}")
    async with stage.child(*words) as engine:
        await provider.wait_for("applied")
        engine.send_signal(signal.SIGKILL)
        await engine.wait()
    stage.say(f"the provider has charged once; process {engine.pid} is dead, the answer is lost")
    await stage.scene("Start again: is it charged a second time?")
    await _expect(stage, 3, *words)
    await _settle(stage, provider)
    return provider


async def _lost_answer(stage: Stage) -> Provider:
    """The line is cut after the provider has charged."""
    from orch8_local.testing.provider import Reply

    provider = await _open(stage, Reply("apply_then_drop"))
    await stage.scene("The provider charges, and the line is cut before its answer arrives")
    await _expect(stage, 3, *_words(provider))
    await _settle(stage, provider)
    return provider


async def _settle(stage: Stage, provider: Provider) -> None:
    """Nobody here knows; the provider is asked, and its answer recorded."""
    stage.say("no. Nobody here can know whether it happened, so the run stopped and says so")
    await stage.run("effects", "list", "--unresolved")
    status, listed = await stage.run("effects", "list", "--unresolved", "--json", is_shown=False)
    assert status == 0, listed
    effect = json.loads(listed)[0]
    await stage.scene("Find out: ask the provider for the key that was sent")
    charged = provider.applied(effect["sent_key"])
    stage.say(f"the provider says: key {effect['sent_key'][:13]}… was charged {charged} time(s)")
    answer = {"status": 200, "body": {"receipt_id": "r-1"}}
    await stage.scene("Record what really happened; the run goes on from there, without sending again")
    await _expect(
        stage,
        0,
        *("effects", "resolve", effect["id"][:8], "--as", "committed"),
        *("--provider-receipt", "r-1", "--evidence", "asked the provider by its key"),
        *("--output", json.dumps(answer, separators=(",", ":"))),
    )


async def _refused(stage: Stage) -> Provider:
    """503 proves that nothing happened: it is tried again."""
    from orch8_local.testing.provider import Reply

    provider = await _open(stage, Reply("5xx_before_apply", status=503), Reply("5xx_before_apply", status=503))
    await stage.scene("The provider is busy: it says 503 twice, which proves that nothing happened")
    await _expect(stage, 0, *_words(provider))
    return provider


async def _offline(stage: Stage) -> Provider:
    """A refused connection proves that nothing was sent: it is tried again until somebody listens."""
    from orch8_local.testing.provider import Provider

    provider = await _open(stage)
    port = int(provider.url.rpartition(":")[2])
    await provider.stop()
    await stage.scene("Nobody listens: a refused connection proves that nothing was sent")
    later = Provider(port=port)

    async def come_back() -> None:
        await asyncio.sleep(2.0)
        await later.start()
        stage.say("(the provider is back)")

    back = asyncio.ensure_future(come_back())
    await _expect(stage, 0, *_words(provider))
    await back
    return later


async def _expect(stage: Stage, wanted: int, *words: str) -> None:
    status, shown = await stage.run(*words)
    if status != wanted:
        raise Bug(f"exit status {status} where {wanted} was promised: {shown}", hint="please report it")
