"""The documents say what the program does: every command, option, error and setting is in them."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from orch8_local import __version__, errors
from orch8_local.blocks import every
from orch8_local.blocks.base import built_types
from orch8_local.cli.main import COMMANDS, cli, run
from orch8_local.cli.project import make_project
from orch8_local.engine import built
from orch8_local.model import outcome

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


# --- what the README says is tried --------------------------------------------------------------------------


def blocks_of(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[list[str]]:
    """The words of every call of this program in a page's shell blocks and in its inline code."""
    lines = [line for block in blocks_of(page, "sh") for line in block.splitlines()]
    lines += re.findall(r"`(orch8-local [^`]+)`", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))
    found = []
    for line in lines:
        for part in re.split(r"&&|\|\|?", line):
            _, program, rest = part.partition("orch8-local ")
            if program and "{" not in part.partition("orch8-local")[0]:
                found.append(shlex.split(rest.replace("$(date +%F)", "2027-01-01")))
    return [words for words in found if words[0] != "…"]


@pytest.mark.parametrize("page", ["README.md", "docs/guarantees.md", "docs/architecture.md", "docs/differences.md"])
def test_every_command_that_a_page_tells_to_type_exists(page: str) -> None:
    """Commands, verbs and options in the pages are those of the program, spelled as it takes them."""
    assert page != "README.md" or commands_of(read(page))
    for words in commands_of(read(page)):
        command: click.Command = cli
        rest = list(words)
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            child = command.get_command(click.Context(command), rest[0])
            assert child is not None, f"{page}: orch8-local {' '.join(words)}"
            command, rest = child, rest[1:]
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        wrong = [word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
        assert not wrong, f"{page}: {' '.join(words)}"


def test_the_readme_names_at_least_every_group_of_commands() -> None:
    """A reader of the README has met what there is to type."""
    page = read("README.md")
    missing = [name for name in COMMANDS if not re.search(rf"orch8-local {name}|`{name}`", page) and name != "version"]
    assert not missing, missing


def test_the_sequence_and_the_handler_of_the_readme_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a project fresh from `init`, the README's document is valid and its handler loads."""
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    (document,) = blocks_of(read("README.md"), "json")
    (tmp_path / "sequences" / "charge-order.json").write_text(document)
    handler = next(block for block in blocks_of(read("README.md"), "python") if '@handler("print_label"' in block)
    (tmp_path / "handlers" / "label.py").write_text(handler)
    assert run(["validate", "charge-order", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["problems"] == []
    assert run(["handlers", "show", "print_label"]) == 0


def test_the_program_of_the_readme_prints_what_its_comment_says(tmp_path: Path) -> None:
    """The Python example runs as it stands."""
    program = next(block for block in blocks_of(read("README.md"), "python") if "asyncio.run" in block)
    (said,) = re.findall(r"print\(.*\)  # (.*)", program)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


def test_the_table_of_answers_is_that_of_the_code() -> None:
    """docs/guarantees.md lists exactly the statuses that the program takes for a refusal."""
    page = read("docs/guarantees.md")
    (listed,) = re.findall(r"^\| ((?:\d{3} ?){5,}) \|", page, re.MULTILINE)
    assert {int(status) for status in listed.split()} == outcome.REJECTED_STATUSES
    assert f"| {', '.join(map(str, sorted(outcome.THROTTLED_STATUSES)))} | nothing happened, try later |" in page


def test_the_switches_of_the_proofs_are_named() -> None:
    """Every environment variable that raises the figures of a proof is in docs/guarantees.md, and no other."""
    page = read("docs/guarantees.md")
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    used = set(re.findall(r"\"(ORCH8_(?:CRASH|SIM|POWER|FUZZ)_[A-Z]+)\"", code))
    assert used
    assert used == set(re.findall(r"`(ORCH8_(?:CRASH|SIM|POWER|FUZZ)_[A-Z]+)`", page))


def test_what_is_not_built_is_listed() -> None:
    """docs/differences.md names every part that a start refuses, by its name in the document."""
    page = read("docs/differences.md").partition("## Not built yet")[2]
    parts = [*built.STEP_FIELDS, *built.DOCUMENT_FIELDS, *(f"effect.{name}" for name in built.EFFECT_FIELDS)]
    missing = [name for name in parts if f"`{name}`" not in page]
    types = {module.__name__.rpartition(".")[2] for module in every.MODULES}
    missing += [name for name in types - set(built_types()) if name not in page]
    assert not missing, missing
