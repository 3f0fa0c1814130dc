"""Cuts a recorded run at every operation and judges each disk that the cut may leave.

Owns the walk and the count. What a disk must satisfy is the judge's business. The easy mistake:
forgetting what the world knew at the cut: every send and every acknowledgement before it is handed
to the judge with the disk.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from orch8_local.testing.invariants import Violation
from tests.power.disk import Disk
from tests.power.trace import Operation, Said, Send, SyncBegun


@dataclass(frozen=True, slots=True)
class Known:
    """What the world had seen when the power went."""

    sent: tuple[bytes, ...] = ()
    """The bytes of each connection, in the order of their first byte."""
    said: bytes = b""


Judge = Callable[[Path, Known], Sequence[Violation]]
"""(the folder as the cut left it, what the world knew) -> what is wrong with it."""


@dataclass(slots=True)
class Verdict:
    """The count of one replay."""

    n_operations: int = 0
    n_states: int = 0
    n_bad: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Bad states by the code of their violations."""
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    @property
    def states_per_s(self) -> float:
        """How fast this machine judged."""
        return self.n_states / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"{self.n_states} crash states over {self.n_operations} operations, {self.n_bad} bad,"
            f" {self.seconds:.1f} s, {self.states_per_s:.0f}/s"
        )


def replay(
    operations: Sequence[Operation],
    root: Path,
    judge: Judge,
    *,
    n_states: int,
    seed: int,
    part: tuple[int, int] = (0, 1),
) -> Verdict:
    """Judge at least `n_states` disks of the run, spread evenly over its operations.

    part: (which, of how many): every n-th cut only, to share the work. A violation names the seed,
    the operation and the number of the state, so it can be made again.
    """
    which, n_parts = part
    cuts = [n for n, op in enumerate(operations) if not isinstance(op, SyncBegun | Said)]
    n_each = max(3, math.ceil(n_states / max(1, len(cuts) / n_parts)))
    verdict = Verdict(n_operations=len(operations))
    folder = Path(mkdtemp(prefix="orch8-power-", dir=_fast_place()))
    began = time.monotonic()
    try:
        for at, state, known in _states(operations, cuts[which::n_parts], n_each, seed):
            _put(state, root, folder)
            problems = judge(folder, known)
            verdict.n_states += 1
            if problems:
                verdict.n_bad += 1
                verdict.kinds.update({problem.code for problem in problems})
                verdict.examples.extend(f"seed {seed}, {at}: {problem}" for problem in problems[:3])
                del verdict.examples[20:]
    finally:
        shutil.rmtree(folder)
    verdict.seconds = time.monotonic() - began
    return verdict


def _fast_place() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


def _states(
    operations: Sequence[Operation], cuts: Sequence[int], n_each: int, seed: int
) -> Iterator[tuple[str, dict[str, bytes], Known]]:
    disk = Disk()
    streams: dict[int, bytearray] = {}
    said = bytearray()
    wanted = set(cuts)
    for n, operation in enumerate(operations):
        disk.apply(operation)
        if isinstance(operation, Send):
            streams.setdefault(operation.stream, bytearray()).extend(operation.data)
        elif isinstance(operation, Said):
            said.extend(operation.data)
        if n not in wanted:
            continue
        known = Known(tuple(bytes(stream) for stream in streams.values()), bytes(said))
        yield f"operation {n}, nothing survives", disk.nothing_survives(), known
        yield f"operation {n}, everything survives", disk.everything_survives(), known
        for k in range(n_each - 2):
            yield f"operation {n}, state {k}", disk.random_state(Random(f"{seed}/{n}/{k}")), known


def _put(state: dict[str, bytes], root: Path, folder: Path) -> None:
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    for path, content in state.items():
        target = folder / Path(path).relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
