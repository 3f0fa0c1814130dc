"""Every error this program raises on purpose, in one tree.

    Orch8Error                      code, exit_status, hint, details
    ├ InputError            (2)
    │  ├ SequenceInvalid            the document has problems, all of them listed
    │  ├ TemplateError              a {{ template }} cannot be resolved
    │  ├ ExpressionError            an expression does not parse or is too deep
    │  ├ SettingsError              a setting, environment variable or project file is wrong
    │  ├ ParamsInvalid              a handler's params do not fit its schema
    │  ├ EgressRefused              a request would go where it must not; nothing was sent
    │  └ NotBuilt                   the document is right, but this program cannot run that part yet
    ├ NotFound              (6)
    ├ Conflict              (7)
    │  ├ IllegalMove                a state machine forbids the transition
    │  ├ StaleVersion               somebody else changed the row first
    │  ├ AlreadyExists              a key, name or file is taken
    │  ├ ContentConflict            one start key, two different requests
    │  └ NotAllowed                 this actor may not cause this move
    ├ EffectError           (3)
    │  ├ EffectBlocked              an effect's outcome is unknown: nothing is sent
    │  ├ EffectCompensated          the effect was undone; doing it again is a new action
    │  └ EffectInFlight             the same intent is being sent by this process
    ├ RunFailed             (1)     a run ended `failed`
    ├ StoreError            (9)
    │  ├ OwnedElsewhere     (8)     another process holds the lease
    │  ├ NoEngine           (8)     nobody runs the engine and this command needs one
    │  ├ SchemaNewer                the file was written by a newer program
    │  ├ Unsuitable                 this file system, file or folder cannot hold a ledger
    │  ├ DiskFull                   the transaction was rolled back whole: nothing was written
    │  ├ ReadOnly                   the file cannot be written
    │  ├ Corrupt                    the file fails its checks
    │  └ CommitUnknown              COMMIT failed; only a restart can tell whether it is on disk
    └ Bug                   (70)    a broken assertion; never caught below main

This module owns the taxonomy and imports nothing of the project. The easy mistake: treating an
`EffectError` or a `StoreError` as the failure of a step. They never reach a retry policy.
Exit statuses are those of the product contract, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Orch8Error(Exception):
    """Base of all errors. `str(error)` is one line: what, and why.

    hint: what the reader can do next, one sentence. details: JSON-able facts for `--json`.
    """

    code: str = "error"
    exit_status: int = 70

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        text = message or (self.__doc__ or self.code).strip().splitlines()[0]
        super().__init__(text)
        self.message = text
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})


# --- input -----------------------------------------------------------------------------------


class InputError(Orch8Error):
    """The input is not valid; nothing was changed."""

    code = "input_invalid"
    exit_status = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about a document (sequence-format 11.1).

    code: stable dotted name, e.g. `field.unknown`. severity: `error` or `warning`.
    path: JSON pointer, "" for the whole document. line, column: from 1, 0 when unknown.
    """

    code: str
    message: str
    path: str = ""
    line: int = 0
    column: int = 0
    severity: str = "error"
    block_id: str | None = None
    expected: str | None = None
    suggestion: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The problem as JSON, absent facts as null."""
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "block_id": self.block_id,
            "message": self.message,
            "expected": self.expected,
            "suggestion": self.suggestion,
        }


class SequenceInvalid(InputError):
    """The sequence document is not valid."""

    code = "sequence_invalid"

    def __init__(self, problems: Sequence[Problem], *, source: str = "document") -> None:
        errors = [p for p in problems if p.severity == "error"]
        first = errors[0] if errors else Problem("unknown", "not valid")
        where = f"{source}:{first.line}:{first.column}" if first.line else source
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(
            f"{where}: {first.message}{more}",
            hint=first.suggestion or f"run `orch8-local validate {source}` for all problems",
            details={"problems": [p.as_dict() for p in problems], "source": source},
        )
        self.problems = tuple(problems)


class TemplateError(InputError):
    """A template cannot be resolved."""

    code = "template_error"


class ExpressionError(InputError):
    """An expression does not parse."""

    code = "expression_error"

    def __init__(self, message: str, *, column: int = 0, suggestion: str | None = None) -> None:
        super().__init__(message, hint=suggestion, details={"column": column})
        self.column = column
        self.suggestion = suggestion


class SettingsError(InputError):
    """A setting is wrong."""

    code = "settings_error"


class ParamsInvalid(InputError):
    """The params of a step do not fit its handler."""

    code = "params_invalid"


class EgressRefused(InputError):
    """The request may not go there; nothing was sent."""

    code = "egress_refused"


class NotBuilt(InputError):
    """The document asks for something this version cannot run yet."""

    code = "not_built"


# --- look-up and conflict ----------------------------------------------------------------------


class NotFound(Orch8Error):
    """There is no such thing."""

    code = "not_found"
    exit_status = 6


class Conflict(Orch8Error):
    """The request does not fit what is there now."""

    code = "conflict"
    exit_status = 7


class IllegalMove(Conflict):
    """The state machine forbids this transition."""

    code = "illegal_move"

    def __init__(self, machine: str, old: str, new: str) -> None:
        super().__init__(
            f"{machine} cannot go from {old} to {new}",
            details={"machine": machine, "from": old, "to": new},
        )


class StaleVersion(Conflict):
    """It was changed by somebody else in the meantime."""

    code = "stale_version"


class AlreadyExists(Conflict):
    """It exists already."""

    code = "already_exists"


class ContentConflict(Conflict):
    """This start key belongs to a run with other input."""

    code = "content_conflict"


class NotAllowed(Conflict):
    """This actor may not do that."""

    code = "not_allowed"


# --- effects -----------------------------------------------------------------------------------


class EffectError(Orch8Error):
    """An effect stands in the way."""

    code = "effect_error"
    exit_status = 3


class EffectBlocked(EffectError):
    """The outcome of a sent action is not known, so nothing more is sent."""

    code = "effect_blocked"

    def __init__(self, effect_ids: Sequence[str], message: str | None = None) -> None:
        super().__init__(
            message or "the outcome of a sent action is not known: " + ", ".join(effect_ids),
            hint=f"find out what happened, then: orch8-local effects resolve {effect_ids[0]}",
            details={"effect_ids": list(effect_ids)},
        )
        self.effect_ids = tuple(effect_ids)


class EffectCompensated(EffectError):
    """The effect was undone; performing it again is a new action."""

    code = "effect_compensated"


class EffectInFlight(EffectError):
    """The same action is being sent right now."""

    code = "effect_in_flight"


class RunFailed(Orch8Error):
    """The run failed."""

    code = "run_failed"
    exit_status = 1


# --- the store ---------------------------------------------------------------------------------


class StoreError(Orch8Error):
    """The database cannot do this."""

    code = "store_error"
    exit_status = 9


class OwnedElsewhere(StoreError):
    """Another process owns this database."""

    code = "owned_elsewhere"
    exit_status = 8


class NoEngine(StoreError):
    """No engine is running for this database."""

    code = "no_engine"
    exit_status = 8


class SchemaNewer(StoreError):
    """The database was written by a newer version of this program."""

    code = "schema_newer"


class Unsuitable(StoreError):
    """This place cannot hold a ledger."""

    code = "unsuitable"


class DiskFull(StoreError):
    """The disk is full; nothing of this transaction was written."""

    code = "disk_full"


class ReadOnly(StoreError):
    """The database cannot be written."""

    code = "read_only"


class Corrupt(StoreError):
    """The database file is damaged."""

    code = "corrupt"


class CommitUnknown(StoreError):
    """The disk refused a commit; only a restart can tell whether it was written."""

    code = "commit_unknown"


class Bug(Orch8Error):
    """This program broke one of its own rules."""

    code = "bug"
    exit_status = 70
