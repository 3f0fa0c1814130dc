"""The documents say what the program does: every command, option, error and setting is in them."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from orch8_local import __version__, errors
from orch8_local.cli.main import COMMANDS, cli

ROOT = Path(__file__).parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "docs"))


def all_commands(generator: dict[str, Any]) -> Iterator[tuple[str, click.Command]]:
    yield from generator["commands"]()


def test_every_command_and_option_has_help(generator: dict[str, Any]) -> None:
    """`--help` explains every command and every option; nothing is left to guess."""
    silent = []
    for name, command in all_commands(generator):
        if not command.help:
            silent.append(name)
        silent += [
            f"{name} {option.opts[0]}"
            for option in command.params
            if isinstance(option, click.Option) and not option.hidden and not option.help
        ]
    assert not silent, silent


def test_the_table_of_commands_says_what_the_commands_say(generator: dict[str, Any]) -> None:
    """The help of the whole program and the help of one command begin with the same sentence."""
    context = click.Context(cli)
    for name, (_, text) in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert (command.help or "").strip(), name
        assert text.endswith("."), name


def test_every_command_is_documented(generator: dict[str, Any]) -> None:
    """Every command is in docs/commands.md."""
    page = read("docs/commands.md")
    missing = [name for name, _ in all_commands(generator) if name not in page]
    assert not missing, missing


def test_generated_pages_are_fresh() -> None:
    """docs/commands.md, errors.md and settings.md are what the code says today."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, f"run scripts/docs: {done.stdout}{done.stderr}"


def test_every_error_is_documented() -> None:
    """Every error class and its code are in docs/errors.md, and in the tree drawn in errors.py."""
    page, drawn = read("docs/errors.md"), errors.__doc__ or ""
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.Orch8Error)]
    assert classes
    for kind in classes:
        assert f"`{kind.__name__}`" in page, kind
        assert f"`{kind.code}`" in page, kind
        assert kind.__name__ in drawn, kind
        assert kind.__doc__, kind


def test_the_changelog_begins_with_this_version() -> None:
    """The version is one number: changelog, package and program agree."""
    heading = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)
    assert heading is not None
    assert heading[1] == __version__ == tomllib.loads(read("pyproject.toml"))["project"]["version"]


def test_every_dependency_is_accounted_for() -> None:
    """A dependency has a line in docs/dependencies.md: what for, what it costs, who keeps it."""
    page = read("docs/dependencies.md")
    project = tomllib.loads(read("pyproject.toml"))["project"]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        name = re.split(r"[<>=!~\[; ]", requirement)[0]
        assert re.search(rf"(\| |`){re.escape(name)}( \||`)", page), name


def test_documents_link_to_what_is_there() -> None:
    """No page points to a file that does not exist."""
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_the_readme_holds_the_command_that_ci_runs() -> None:
    """CI runs exactly the one line that the README gives for testing."""
    text = read("README.md")
    found = re.search(r"<!-- the test command -->\n```sh\n([^\n]+)\n```\n", text)
    assert found is not None
    assert "scripts/test" in found[1]
