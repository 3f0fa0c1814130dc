"""The house rules that a program can check: imports, sizes, names, SQL, lazy loading."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "orch8_local"

# What each part may import, beside itself. A name covers its submodules; the longest name that fits
# a module is the one that counts, so `handlers.base` has a line of its own. `engine.api` holds the
# contract between the engine and its faces, records only, and is therefore free to all above the model.
PURE = {"errors", "model", "lang"}
RIM = {*PURE, "world", "settings", "engine.api", "inbox", "handlers.base", "handlers.egress", "store"}
PLUG_INS = {*PURE, "world", "blocks", "sequence", "settings", "handlers.base", "handlers.egress"}
ENGINE = {*RIM, "blocks", "sequence", "engine"}
FACE = {*PURE, "settings", "world", "engine.api", "sequence", "blocks", "handlers.base", "app", "upkeep"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "world": {"errors"},
    "settings": {"errors"},
    "model": {"errors"},
    "lang": {"errors"},
    "blocks": PURE,
    "sequence": {*PURE, "blocks"},
    "engine.api": PURE,
    "inbox": {"errors", "model", "engine.api"},
    "store": {*PURE, "world", "settings", "engine.api"},
    "handlers.base": PURE,
    "handlers.egress": {*PURE, "world", "settings", "handlers.base", "handlers.addresses", "handlers.wire"},
    "engine": {*ENGINE, "handlers.builtins"},  # what `Engine.open` offers if it is given no registry
    "handlers": {*PLUG_INS, "handlers"},
    "attached": {*ENGINE, "handlers"},
    "app": {*ENGINE, "handlers", "attached"},
    "upkeep": {"errors", "store"},
    "cli": {*FACE, "engine.engine", "tui"},  # `run` and `up` own the engine that they drive
    "cli.demo": {*FACE, "cli", "testing.provider"},
    "tui": FACE,
    "server": FACE,
    "testing": {*ENGINE, "handlers", "app", "attached"},
    "__main__": {"", "cli"},
}
LEFT_OUT = {""}  # the package itself: its names are resolved when they are used

FORBIDDEN_FILE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX)|"
    r"PRAGMA\s+\w+|BEGIN\s+IMMEDIATE|VACUUM\s+INTO)\b",
    re.IGNORECASE | re.DOTALL,
)


@cache
def python_files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: Path) -> str:
    """The dotted name below the package; "" for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The longest name of the table that covers a module."""
    fits = [name for name in ALLOWED if module == name or module.startswith(f"{name}.")]
    return max(fits, key=len, default=module)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in python_files(PACKAGE)}


def imports_of(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module of the project, line, is it imported when this module is) for every import of a file."""
    tree = tree_of(path)
    late = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            # `from package import name` may name a module or something inside one
            names = [
                f"{node.module}.{alias.name}"
                if f"{node.module}.{alias.name}".removeprefix("orch8_local.") in modules()
                else node.module
                for alias in node.names
            ]
        for name in names:
            if name == "orch8_local" or name.startswith("orch8_local."):
                line = node.lineno if isinstance(node, ast.stmt) else 0
                yield name.removeprefix("orch8_local").removeprefix("."), line, node not in late


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_lower_parts_never_import_higher_ones() -> None:
    """Imports point one way: each part imports only what the table allows it."""
    wrong = []
    for name, path in modules().items():
        if name in LEFT_OUT:
            continue
        part = part_of(name)
        assert part in ALLOWED, f"{path.relative_to(ROOT)}: give this part a line in the table of layers"
        for target, line, _ in imports_of(path):
            if target in LEFT_OUT and part in {"cli", "server", "tui", "app", "testing"}:
                continue  # `from orch8_local import __version__`
            if part_of(target) != part and not {target, part_of(target)} & ALLOWED[part]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_there_is_no_import_cycle() -> None:
    """No module needs, to be imported, a module that needs it."""
    graph = {
        name: {target for target, _, is_needed in imports_of(path) if is_needed and target in modules()}
        for name, path in modules().items()
    }
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, "a cycle: " + " -> ".join([*way[way.index(name) :], name])
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_files_and_functions_stay_readable() -> None:
    """No file is longer than 600 lines and no function longer than 60."""
    wrong = []
    for path in python_files(PACKAGE):
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        if n_lines > MAX_FILE_LINES:
            wrong.append(f"{path.relative_to(ROOT)} has {n_lines} lines")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines")
    assert not wrong, "\n".join(wrong)


def test_files_of_tests_and_tools_stay_readable_too() -> None:
    """What proves the program is read as often as the program: no file of it is longer than 600 lines."""
    folders = [ROOT / "tests", ROOT / "benchmarks"]
    files = [*(path for folder in folders for path in python_files(folder)), *sorted((ROOT / "scripts").iterdir())]
    long = [path for path in files if path.is_file() and len(path.read_text("utf-8").splitlines()) > MAX_FILE_LINES]
    assert not long, long


def test_what_is_imported_is_declared() -> None:
    """Every library that the package imports is a dependency of its own, not one that another brings along."""
    declared = {
        re.split(r"[<>=!~\[; ]", requirement)[0].lower().replace("-", "_")
        for requirement in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    }
    imported = {
        name.split(".")[0]
        for path in python_files(PACKAGE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    third_party = {name for name in imported if name not in sys.stdlib_module_names and name != "orch8_local"}
    assert third_party - declared == set()
    assert declared - third_party == {"sniffio", "tzdata"}  # each says in docs/dependencies.md who needs it


def test_every_file_is_named_after_what_it_owns() -> None:
    """A module is a noun that owns something, and its docstring says what."""
    wrong = [p for p in python_files(ROOT / "orch8_local") if p.stem in FORBIDDEN_FILE_NAMES]
    assert not wrong, f"name these after what they own: {wrong}"
    silent = [p for p in python_files(PACKAGE) if not ast.get_docstring(tree_of(p))]
    assert not silent, f"say in a docstring what these own: {silent}"


def test_sql_is_written_in_the_store_only() -> None:
    """SQL, and the library that speaks it, is found in store/ and nowhere else."""
    wrong = []
    for path in python_files(PACKAGE):
        if module_name(path).startswith(("store", "testing")):
            continue
        docstrings = {id(node) for node in docstring_nodes(tree_of(path))}
        for node in ast.walk(tree_of(path)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docstrings
                and SQL.search(node.value)
            ):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} holds SQL")
            elif isinstance(node, ast.Import | ast.ImportFrom) and names_sqlite(node):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} imports the database library")
    assert not wrong, "\n".join(wrong)


def docstring_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr):
                yield first.value


def names_sqlite(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.split(".")[0] in {"sqlite3", "aiosqlite"} for name in names)


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running the code."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_importing_the_package_is_cheap() -> None:
    """`import orch8_local` loads none of pydantic, httpx, textual, asyncio, sqlite3."""
    assert not loaded_by("import orch8_local") & {"pydantic", "httpx", "textual", "asyncio", "sqlite3"}


def test_asking_for_the_version_is_cheap() -> None:
    """`orch8-local --version` loads none of pydantic, httpx, textual, asyncio, sqlite3, click."""
    code = (
        "sys.argv = ['orch8-local', '--version']\n"
        "from orch8_local.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code in (0, None)\n"
    )
    heavy = {"pydantic", "httpx", "textual", "asyncio", "sqlite3", "click", "rich"}
    assert not loaded_by(code) & heavy


def test_asking_for_help_is_cheap() -> None:
    """The list of commands is shown without loading the engine, a handler or the database."""
    code = (
        "from orch8_local.cli.main import run\n"
        "import io\nsaved, sys.stdout = sys.stdout, io.StringIO()\n"
        "assert run(['--help']) == 0\nsys.stdout = saved\n"
    )
    assert not loaded_by(code) & {"pydantic", "httpx", "textual", "asyncio", "sqlite3", "aiosqlite"}


@pytest.mark.parametrize("part", ["model", "lang", "blocks", "sequence"])
def test_pure_parts_load_nothing_of_the_world(part: str) -> None:
    """Deciding needs no clock, no loop, no socket and no database: the pure parts load none."""
    names = [f"orch8_local.{name}" for name in modules() if name == part or name.startswith(f"{part}.")]
    assert names, f"there is no part {part}"
    loaded = loaded_by("\n".join(f"import {name}" for name in names))
    assert not loaded & {"asyncio", "sqlite3", "httpx", "aiosqlite"}


@pytest.mark.parametrize("part", ["model", "lang"])
def test_the_innermost_parts_read_no_clock_and_draw_no_number(part: str) -> None:
    """model and lang import neither time nor random: both come in as values."""
    for name, path in modules().items():
        if name != part and not name.startswith(f"{part}."):
            continue
        for node in ast.walk(tree_of(path)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            wrong = {"time", "random", "asyncio", "sqlite3", "secrets", "os"} & set(names)
            assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_every_test_states_the_rule_it_holds() -> None:
    """Each test function has a docstring, in words of the product."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in python_files(ROOT / "tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)


def test_no_test_waits_for_time() -> None:
    """Tests wait for states: none calls time.sleep."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(ROOT / "tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_knows_where_or_by_what_it_was_written() -> None:
    """No path of somebody's machine, no name of a writing aid, no talk of how the work went."""
    folders = ["orch8_local", "tests", "benchmarks", "docs", "scripts", "sequences", ".ci"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.suffix in {".md", ".toml"}]
    aids = "|".join(["cla" + "ude", "anth" + "ropic", "chat" + "gpt", "copi" + "lot"])
    marks = re.compile(
        rf"(?<![\w.])/(?:work|root|home|Users)/\w|\b(?:{aids}|as an a{'i'}|the bri{'ef'}|my ta{'sk'})\b", re.IGNORECASE
    )
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in files
        if path.suffix != ".pyc"
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if (found := marks.search(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_work_is_left_as_a_note() -> None:
    """What is not built is refused by name; no file keeps a note to do it later."""
    marks = ["TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error"]
    wrong = [
        f"{path.relative_to(ROOT)}: {mark}"
        for path in python_files(PACKAGE)
        for mark in marks
        if mark in path.read_text(encoding="utf-8")
    ]
    assert not wrong, "\n".join(wrong)
