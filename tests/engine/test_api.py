"""The Python API as the README shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orch8_local import EffectBlocked, Engine, NotFound, RunFailed, SequenceInvalid, handler
from tests.engine.outside import Outside, step

Json = Any
ROOT = Path(__file__).resolve().parents[2]


@handler("double", kind=None)
async def double(ctx: Any, params: Json) -> Json:
    return {"result": params["n"] * 2}


def sequence(*blocks: Json) -> Json:
    return {"name": "s", "blocks": list(blocks)}


async def test_a_sequence_is_added_started_and_gives_its_outputs(tmp_path: Path) -> None:
    """Add, start by name, wait for the result; a second start with the key is the same run."""
    async with Engine.open(tmp_path / "db", handlers=[double]) as engine:
        await engine.sequences.add(sequence(step("a", "double", params={"n": "{{ data.n }}"})))
        run = await engine.runs.start("s", data={"n": 21}, key="k")
        assert await run.result() == {"a": {"result": 42}}
        assert (await engine.runs.start("s", data={"n": 21}, key="k")).id == run.id


async def test_a_result_that_is_not_there_says_why(tmp_path: Path) -> None:
    """A failed run, a blocked one, an unknown name and a bad document are errors of their own kind."""
    outside = Outside("rejected", "lost")
    async with Engine.open(tmp_path / "db", handlers=[outside.handler]) as engine:
        await engine.sequences.add(sequence(step("a")))
        with pytest.raises(RunFailed, match="no"):
            await (await engine.runs.start("s")).result()
        with pytest.raises(EffectBlocked) as blocked:
            await (await engine.runs.start("s")).result()
        assert len(blocked.value.effect_ids) == 1
        with pytest.raises(NotFound):
            await engine.runs.start("nothing")
        with pytest.raises(SequenceInvalid):
            await engine.sequences.add(sequence({"type": "step", "id": "a"}))


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    """What the README shows under "use it from Python" is a program that does what its comment says."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"### … use it from Python\n\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    (tmp_path / "example.py").write_text(found[1])
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{'a': {'result': 42}}\n", done.stderr
