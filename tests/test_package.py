"""What is installed: a wheel that holds all it needs, and runs where there is no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


def test_a_wheel_holds_code_schema_sequences_and_types(wheel: Path) -> None:
    """Everything the program reads at run time is in the wheel, and no test."""
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
        (entry_points,) = [name for name in found if name.endswith("entry_points.txt")]
        assert "orch8-local = orch8_local.__main__:main" in archive.read(entry_points).decode()
    wanted = {str(path.relative_to(ROOT)) for path in (ROOT / "orch8_local").rglob("*.py")}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "orch8_local").rglob("*.sql")}
    wanted |= {f"orch8_local/sequences/{path.name}" for path in (ROOT / "sequences").glob("*.json")}
    wanted.add("orch8_local/py.typed")
    assert wanted <= found
    assert len([name for name in wanted if name.endswith(".sql")]) > 0
    assert not [name for name in found if name.startswith(("tests/", "sequences/"))]


def test_what_is_installed_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """In an empty folder, with nothing but the wheel, a bundled sequence completes."""
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(empty)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=empty, env=environment, capture_output=True, text=True, check=False
        )

    assert run("-c", "import orch8_local; print(orch8_local.__file__)").stdout.startswith(str(site))
    done = run("-m", "orch8_local", "run", "hello")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completed" in done.stdout + done.stderr
