"""`validate`, `sequences` and `handlers`: what somebody needs who writes sequences.

Owns how a problem of a document is shown: place, what is wrong, the way out. The easy mistake:
stopping at the first file; every file is read, and the exit status says whether any had an error.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orch8_local.cli.asking import changing, submit
from orch8_local.cli.completion import complete_files, complete_handlers, complete_sequences
from orch8_local.cli.invocation import Group, Invocation, common_options
from orch8_local.errors import NotFound, Orch8Error, Problem

if TYPE_CHECKING:
    from orch8_local.cli.catalogue import Entry
    from orch8_local.engine.api import EngineApi, SequenceRow
    from orch8_local.handlers.base import HandlerSpec
    from orch8_local.sequence.document import SequenceDefinition
    from orch8_local.settings import Settings

Json = Any
INVALID_STATUS = 2


# --- validate ------------------------------------------------------------------------------------------


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@common_options
def validate(invocation: Invocation, files: tuple[str, ...]) -> int:
    """Find every problem of a sequence file, each with its place and a way out.

    Exit status 2 if any file has an error; warnings alone are 0. A FILE may also be the name of a
    sequence, or - for standard input.
    """
    from orch8_local.sequence.document import inspect

    settings = invocation.settings()
    handlers = _params_by_handler(settings)
    results: list[Json] = []
    statuses: set[int] = set()
    for given in files:
        try:
            text, source = _document(settings, given)
        except Orch8Error as error:
            if len(files) == 1:
                raise
            statuses.add(error.exit_status)
            problems: tuple[Problem, ...] = (Problem("file.unreadable", error.message, suggestion=error.hint),)
            source, is_valid = given, False
        else:
            found = inspect(text, handlers=handlers, external_handlers=settings.external_handlers)
            problems, is_valid = (*found.problems, *_unbuilt(found.definition)), not found.has_errors
            statuses.add(0 if is_valid else INVALID_STATUS)
        results.append({"file": source, "valid": is_valid, "problems": [problem.as_dict() for problem in problems]})
        if not invocation.is_json:
            _show_problems(invocation, source, problems, is_valid=is_valid)
    if invocation.is_json:
        invocation.write_json(results)
    return INVALID_STATUS if INVALID_STATUS in statuses else max(statuses)


def _unbuilt(definition: SequenceDefinition | None) -> list[Problem]:
    """A warning for each part that a start would refuse."""
    from orch8_local.app import unbuilt_parts

    if definition is None:
        return []
    hint = "run the document on an Orch8 server, or take that part out"
    return [
        Problem("document.not_built", f"{part} is not built in this version", severity="warning", suggestion=hint)
        for part in unbuilt_parts(definition)
    ]


def _params_by_handler(settings: Settings) -> Mapping[str, Any]:
    """What steps may call here, with the model of the params where there is one."""
    from orch8_local.app import build_registry

    return {spec.name: spec.params for spec in build_registry(settings).specs()}


def _document(settings: Settings, given: str) -> tuple[bytes | str, str]:
    """(the document's bytes or text, how messages call it)."""
    from orch8_local.cli.catalogue import read_bytes
    from orch8_local.cli.source import find_source

    if given == "-":
        return sys.stdin.buffer.read(), "standard input"
    path = Path(given)
    if path.is_file():
        return read_bytes(path), given
    source = asyncio.run(find_source(settings, given))
    return source.text, source.name


def _show_problems(invocation: Invocation, source: str, problems: tuple[Problem, ...], *, is_valid: bool) -> None:
    from orch8_local.cli.render import count_text, one_line
    from orch8_local.cli.screen import Cell, show_lines

    n_errors = sum(problem.severity == "error" for problem in problems)
    for problem in problems:
        place = f"{source}:{problem.line}:{problem.column}" if problem.line else source
        head = one_line(f"{place}: {problem.severity}: {problem.message}")
        way_out = one_line(problem.suggestion) if problem.suggestion else ""
        if invocation.is_plain:
            path = problem.path or "/"
            invocation.write("\t".join([head, problem.code, path, way_out]))
            continue
        style = "red" if problem.severity == "error" else "yellow"
        lines: list[Cell | str] = [Cell(head, style)]
        if problem.path:
            lines.append(Cell(f"    at {one_line(problem.path)}", "bright_black"))
        if way_out:
            lines.append(f"    {way_out}")
        show_lines(lines)
    n_warnings = len(problems) - n_errors
    found = [count_text(n_errors, "error")] if n_errors else []
    found += [count_text(n_warnings, "warning")] if n_warnings else []
    verdict = "valid" if is_valid else "not valid"
    summary = f"{source}: {verdict}{', ' + ', '.join(found) if found else ''}"
    if is_valid:
        invocation.write(one_line(summary))
    else:
        invocation.note(one_line(summary))


# --- sequences -----------------------------------------------------------------------------------------


@click.group(cls=Group)
def sequences() -> None:
    """List, show and add sequences: those of the project, of the database, and the bundled ones."""


@sequences.command("list")
@common_options
def list_sequences(invocation: Invocation) -> None:
    """List every sequence that can be named."""
    from orch8_local.cli.catalogue import available
    from orch8_local.cli.screen import Cell, show_table

    settings = invocation.settings()
    entries, rows = available(settings), stored_sequences(settings)
    listed = [_entry_json(entry) for entry in entries]
    listed += [_row_json(row) for row in rows if not row.source.startswith("bundled:")]
    if invocation.is_json:
        invocation.write_json(listed)
        return
    table: list[list[Cell | str]] = [
        [item["name"], f"v{item['version']}", item["origin"], item["problem"] or _first_sentence(item["description"])]
        for item in listed
    ]
    show_table(invocation, ["NAME", "VERSION", "FROM", "WHAT"], table)


def _first_sentence(text: str | None) -> str:
    """What fits into a list; `show` has the rest."""
    return (text or "").split(". ")[0].removesuffix(".")


def _entry_json(entry: Entry) -> dict[str, Json]:
    import json

    try:
        document = json.loads(entry.text)
    except (ValueError, RecursionError):
        document = None
    description = document.get("description") if isinstance(document, dict) else None
    return {
        "name": entry.name,
        "version": entry.version,
        "origin": entry.origin,
        "source": entry.source,
        "sha256": None,
        "description": description if isinstance(description, str) else None,
        "problem": entry.problem,
    }


def _row_json(row: SequenceRow) -> dict[str, Json]:
    return {
        "name": row.name,
        "version": row.version,
        "origin": "added",
        "source": row.source,
        "sha256": row.sha256,
        "description": f"{row.sha256[:6]} from {row.source}",
        "problem": None,
    }


def stored_sequences(settings: Settings) -> list[SequenceRow]:
    """The revisions in the database; none if there is no database yet."""
    from orch8_local.app import Need, connect

    async def look() -> list[SequenceRow]:
        async with connect(settings, need=Need.READ) as api:
            return await api.views.sequences()

    try:
        return asyncio.run(look())
    except NotFound:
        return []


@sequences.command("show")
@click.argument("sequence", metavar="NAME|FILE", shell_complete=complete_sequences)
@common_options
def show_sequence(invocation: Invocation, sequence: str) -> None:
    """Show one sequence: with --json its document, else what it takes and what it does."""
    from orch8_local.cli.source import find_source
    from orch8_local.sequence.document import parse

    found = asyncio.run(find_source(invocation.settings(), sequence))
    definition = parse(found.text, source=found.name).definition
    if invocation.is_json:
        invocation.write_json(definition.to_json())
        return
    _show_definition(invocation, definition, found.name)


def _show_definition(invocation: Invocation, definition: SequenceDefinition, source: str) -> None:
    from orch8_local.cli.render import one_line
    from orch8_local.cli.screen import Cell, heading, show_facts, show_table

    facts: list[tuple[str, Cell | str]] = [
        ("sequence", f"{one_line(definition.name)} v{definition.version} {definition.content_sha256[:6]}"),
        ("from", source),
    ]
    if definition.description:
        facts.append(("what", definition.description))
    schema = definition.input_schema
    if schema is not None:
        required = set(schema.get("required", ()))
        for name, field in (schema.get("properties") or {}).items():
            field = field if isinstance(field, dict) else {}
            need = "required" if name in required else "optional"
            what = f": {field['description']}" if field.get("description") else ""
            facts.append((f"data.{name}", f"{_type(field)}, {need}{what}"))
    show_facts(invocation, facts)
    heading(invocation, "blocks")
    table: list[list[Cell | str]] = []
    for block, _, depth in definition.walk():
        when, retry = getattr(block, "when", None), getattr(block, "retry", None)
        details = [f"when {when}"] if when else []
        details += [f"at most {retry.max_attempts} times"] if retry is not None else []
        name = f"{'  ' * depth}{one_line(block.id)}"
        table.append([name, getattr(block, "handler", block.type), one_line("; ".join(details))])
    show_table(invocation, ["BLOCK", "CALLS", "HOW"], table)


@sequences.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@click.option("--strict", is_flag=True, help="Refuse another content under a name and version that is there.")
@click.option("--by", metavar="NAME", help="Who adds it; default the user's name.")
@common_options
def add(invocation: Invocation, files: tuple[str, ...], strict: bool, by: str | None) -> int:
    """Store sequences in the database, so that they can be run by name. All files are checked first."""
    from orch8_local.sequence.document import parse

    settings = invocation.settings()
    handlers = _params_by_handler(settings)
    documents: list[tuple[str, str]] = []
    for given in files:
        text, source = _document(settings, given)
        parse(text, source=source, handlers=handlers, external_handlers=settings.external_handlers)
        origin = str(Path(given).absolute()) if Path(given).is_file() else source
        documents.append((text if isinstance(text, str) else text.decode(), origin))

    async def change(api: EngineApi, _: Settings) -> int:
        results = []
        for text, source in documents:
            arguments = {
                "document": text,
                "source": source,
                "strict": strict,
                "external_handlers": list(settings.external_handlers),
            }
            result = {**await submit(api, "add_sequence", arguments, by), "source": source}
            results.append(result)
            if not invocation.is_json:
                what = "added" if result["is_new"] else "is there already"
                invocation.write(f"{result['name']} v{result['version']} {result['sha256'][:6]} {what}")
        if invocation.is_json:
            invocation.write_json(results)
        return 0

    return asyncio.run(changing(invocation, change, may_make=True))


# --- handlers ------------------------------------------------------------------------------------------


@click.group(cls=Group)
def handlers() -> None:
    """List and show what steps can call."""


@handlers.command("list")
@common_options
def list_handlers(invocation: Invocation) -> None:
    """List every handler: what it does, and what happens when its outcome is unclear."""
    from orch8_local.app import build_registry
    from orch8_local.cli.screen import Cell, show_table

    specs = build_registry(invocation.settings()).specs()
    if invocation.is_json:
        invocation.write_json([_handler_json(spec) for spec in specs])
        return
    table: list[list[Cell | str]] = [
        [spec.name, "builtin" if spec.is_builtin else "yours", _mode(spec), spec.summary] for spec in specs
    ]
    show_table(invocation, ["HANDLER", "FROM", "IF UNCLEAR", "WHAT"], table)


def _mode(spec: HandlerSpec) -> str:
    if not spec.is_effect:
        return "pure"
    return str(spec.mode).replace("_", "-")


def _handler_json(spec: HandlerSpec) -> dict[str, Json]:
    return {
        "name": spec.name,
        "builtin": spec.is_builtin,
        "kind": None if spec.kind is None else str(spec.kind),
        "mode": str(spec.mode) if spec.is_effect else "none",
        "marks_dispatch": spec.marks_dispatch,
        "summary": spec.summary,
        "params": None if spec.params is None else spec.params.model_json_schema(),
    }


@handlers.command("show")
@click.argument("name", shell_complete=complete_handlers)
@common_options
def show_handler(invocation: Invocation, name: str) -> None:
    """Show one handler: its params with types and defaults, its kind and mode."""
    from orch8_local.app import build_registry
    from orch8_local.cli.render import json_line
    from orch8_local.cli.screen import Cell, heading, show_facts, show_table

    spec = build_registry(invocation.settings()).get(name)
    if invocation.is_json:
        invocation.write_json(_handler_json(spec))
        return
    facts: list[tuple[str, Cell | str]] = [
        ("handler", spec.name),
        ("what", spec.summary),
        ("receipt", f"yes, kind {spec.kind}" if spec.is_effect else "no: it acts on nothing outside"),
    ]
    if spec.is_effect:
        facts.append(("if unclear", _MEANING.get(str(spec.mode), str(spec.mode))))
    show_facts(invocation, [fact for fact in facts if fact[1]])
    if spec.params is None:
        invocation.note("any params")
        return
    schema = spec.params.model_json_schema()
    required = set(schema.get("required", ()))
    table: list[list[Cell | str]] = []
    for param, field in schema.get("properties", {}).items():
        default = "required" if param in required else f"= {json_line(field.get('default'))}"
        table.append([param, _type(field), default, str(field.get("description", ""))])
    heading(invocation, "params")
    show_table(invocation, ["PARAM", "TYPE", "DEFAULT", "WHAT"], table)


_MEANING = {
    "at_most_once": "the run stops until somebody finds out",
    "repeatable": "it is done again, as the retry policy says",
}


def _type(field: Mapping[str, Json]) -> str:
    """A JSON Schema type in a word or two."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(option) for option in field["anyOf"]))
    if "enum" in field:
        return " or ".join(str(option) for option in field["enum"])
    if "const" in field:
        return str(field["const"])
    return str(field.get("type", "any JSON"))
