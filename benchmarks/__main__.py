"""Measures everything and prints the table of docs/performance.md: `python -m benchmarks`.

Every figure comes from a process of its own, on one folder of the disk that is to be judged
(`--folder`). Counts of syncs are exact (from system calls); times are what this machine gave now.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.marks import n_syncs

ROOT = Path(__file__).resolve().parent.parent
RUNS = (1, 16, 200)
STEPS = {"bare": {1: 1500, 16: 500, 200: 100}, "engine": {1: 300, 16: 100, 200: 25}}
KINDS = ("pure", "effect", "http")
N_STARTS = 9


def child(folder: Path, module: str, *arguments: str, trace: Path | None = None) -> dict[str, Any]:
    """Run one measurement in a fresh folder and return what it printed."""
    place = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-m", module, str(place), *arguments]
    if trace is not None:
        calls = "trace=fsync,fdatasync,sync_file_range,msync,write"
        command = ["strace", "-f", "-qq", "-s", "16", "-e", calls, "-o", str(trace), *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    shutil.rmtree(place)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return dict(json.loads(done.stdout))


def bare(folder: Path, runs: int) -> float:
    """Steps per second of three bare commits a step."""
    found = child(folder, "benchmarks.bare", "--runs", str(runs), "--steps", str(STEPS["bare"][runs]))
    return float(found["steps_per_s"])


def engine(folder: Path, kind: str, runs: int, url: str) -> tuple[float, float, float]:
    """(steps per second, syncs per step, peak memory in MiB)."""
    words = [kind, "--runs", str(runs), "--steps", str(STEPS["engine"][runs]), "--url", url]
    found = child(folder, "benchmarks.engine", *words)
    with tempfile.TemporaryDirectory() as traces:
        trace = Path(traces) / "trace"
        traced = child(folder, "benchmarks.engine", *words, trace=trace)
        syncs = n_syncs(trace) / float(traced["n_steps"])
    return float(found["steps_per_s"]), syncs, float(found["memory_mb"])


def whole_process(folder: Path, *words: str) -> float:
    """Median milliseconds of a whole process."""
    times = []
    environment = {**os.environ, "ORCH8_LOCAL_DB": str(folder / "start.db"), "PYTHONPATH": str(ROOT)}
    for _ in range(N_STARTS):
        began_s = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "orch8_local", *words], cwd=folder, env=environment, capture_output=True, check=True
        )
        times.append(time.perf_counter() - began_s)
    return statistics.median(times) * 1000


def idle_memory_mb(folder: Path) -> float:
    """Resident MiB of `up` with nothing to do, after it has said that it is up."""
    environment = {**os.environ, "ORCH8_LOCAL_DB": str(folder / "idle.db"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "orch8_local", "up"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def report(folder: Path) -> list[str]:
    """The lines of the table."""
    provider = subprocess.Popen(
        [sys.executable, "-m", "orch8_local.testing.provider"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert provider.stdout is not None
    url = json.loads(provider.stdout.readline())["url"]
    lines = [f"{machine()}", "", "| runs at once | bare loop | kind | steps/s | of bare | syncs/step | memory |"]
    lines.append("|---|---|---|---|---|---|---|")
    try:
        for runs in RUNS:
            reference = bare(folder, runs)
            for kind in KINDS:
                speed, syncs, memory_mb = engine(folder, kind, runs, url)
                figures = f"{speed:,.0f} | {speed / reference:.0%} | {syncs:.2f} | {memory_mb:.0f} MiB"
                lines.append(f"| {runs} | {reference:,.0f} | {kind} | {figures} |")
                print(lines[-1], file=sys.stderr, flush=True)
        ten = child(folder, "benchmarks.engine", "effect", "--runs", "1", "--steps", "10")
        ten_pure = child(folder, "benchmarks.engine", "pure", "--runs", "1", "--steps", "10")
    finally:
        provider.terminate()
        provider.wait()
    lines += [
        "",
        f"- one run of ten effects: {ten['elapsed_s'] * 1000:.1f} ms",
        f"- one run of ten pure steps: {ten_pure['elapsed_s'] * 1000:.1f} ms",
        f"- `orch8-local --version`: {whole_process(folder, '--version'):.0f} ms as a whole process",
        f"- `orch8-local run hello`: {whole_process(folder, 'run', 'hello'):.0f} ms as a whole process",
        f"- an idle engine (`up`): {idle_memory_mb(folder):.0f} MiB",
    ]
    return lines


def machine() -> str:
    """Where and when this was measured."""
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {today}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to judge")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as work:
        print("\n".join(report(Path(work))))
