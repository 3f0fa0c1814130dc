"""What all tests share: a home that is not the person's own, and the figures of the proofs in the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import settings

settings.register_profile("untimed", deadline=None, print_blob=True)
settings.load_profile("untimed")

RecordProperty = Callable[[str, object], None]
FIGURE = "figure"
"""A test shows a figure by `record_property(FIGURE, "300 kills, 0 violations")`; workers hand it on."""


@pytest.fixture(autouse=True, scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Settings and databases of the person who runs the tests are never read or written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in [name for name in os.environ if name.startswith(("ORCH8_LOCAL_", "XDG_"))]:
            patch.delenv(name)
        yield


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """List the figures, each with the test that found it, above pytest's closing line."""
    figures = [
        (report.nodeid, text)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, text in report.user_properties
        if name == FIGURE
    ]
    if figures:
        terminalreporter.section("figures")
        for test, text in sorted(figures, key=str):
            terminalreporter.write_line(f"{test.rpartition('/')[2]}: {text}")
