"""Runs a program under `strace` and hands back what it did to the disk and the network.

The production interpreter and its own SQLite are traced, not a stand-in. The easy mistake: a call
that the trace leaves out; `trace.CALLS` names every call that can change a file, and those that the
model does not know are refused, not ignored.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.power.trace import CALLS, Operation, read

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = "ORCH8_PROOFS_REQUIRED"
"""Set to 1 (CI does), a proof that cannot run is a failure and not a skip."""


def record(
    command: Sequence[str], root: Path, *, trace: Path, environment: Mapping[str, str] | None = None
) -> list[Operation]:
    """Run `command` in the empty folder `root` and return its operations below it.

    Skips the test where there is no strace or no permission to trace. Raises AssertionError if the
    program itself fails.
    """
    _need_strace()
    calls = ",".join(f"?{name}" for name in CALLS.split(","))
    strace = ["strace", "-f", "-y", "-xx", "-s", "16777216", "-o", str(trace), "-e", f"trace={calls}"]
    done = subprocess.run(
        [*strace, *command],
        cwd=root,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, f"the recorded run ended {done.returncode}: {done.stderr.decode()[-2000:]}"
    with trace.open() as lines:
        return read(lines, root)


def _need_strace() -> None:
    if shutil.which("strace") is None:
        _cannot("strace is not installed (Debian package strace): POWER LOSS IS NOT TESTED")
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False, timeout=20)
    if probe.returncode != 0:
        _cannot(f"strace may not trace here: POWER LOSS IS NOT TESTED: {probe.stderr.decode().strip()}")


def _cannot(why: str) -> None:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(why)
    pytest.skip(why)
