"""How a handler is declared and what it is given. Imports model, lang and errors only.

A handler is a function `(ctx, params) -> output | Outcome`. It never touches the store: what it
wants written it returns as changes. The easy mistake: forgetting that without a declaration a
handler is side-effecting and at-most-once; only a declared pure handler runs without a receipt.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from orch8_local.errors import AlreadyExists, InputError, NotFound, ParamsInvalid
from orch8_local.model.outcome import EffectKind, Mode, Outcome

if TYPE_CHECKING:
    from pydantic import BaseModel

Json = Any


class Refused(Exception):
    """The other side said no and nothing happened; the step's retry policy may try again.

    details: JSON facts for `retry_if`. retry_after_s: not before this many seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Json] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s


class Rejected(Exception):
    """The other side said no for good and nothing happened; the step fails without a retry."""

    def __init__(self, message: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class HttpClient(Protocol):
    """What `ctx.http` offers: the guarded client of `handlers.egress`."""

    async def request(self, method: str, url: str, **options: Any) -> Any:
        """Send one request; the first byte marks the dispatch and carries the intent's key.

        options: headers, params, json, content, data, files as in httpx; timeout_s for the whole
        request. Returns a read `httpx.Response`, whatever its status.
        """
        ...

    async def get(self, url: str, **options: Any) -> Any:
        """A GET request."""
        return await self.request("GET", url, **options)

    async def post(self, url: str, **options: Any) -> Any:
        """A POST request."""
        return await self.request("POST", url, **options)

    async def put(self, url: str, **options: Any) -> Any:
        """A PUT request."""
        return await self.request("PUT", url, **options)

    async def patch(self, url: str, **options: Any) -> Any:
        """A PATCH request."""
        return await self.request("PATCH", url, **options)

    async def delete(self, url: str, **options: Any) -> Any:
        """A DELETE request."""
        return await self.request("DELETE", url, **options)


@dataclass(slots=True)
class Context:
    """What a handler sees of its step. One per call.

    attempt: 0 for the first execution. idempotency_key: the same text on every attempt of this
    action; send it. data, config, outputs, state, runtime: read only. `dispatching()` marks the
    moment after which the outside may have seen something; it returns when that mark is on disk. It
    may raise: then send nothing.
    """

    instance_id: str
    block_id: str
    scope: str
    attempt: int
    handler: str
    intent_id: str
    idempotency_key: str
    data: Json
    config: Json
    outputs: Mapping[str, Json]
    state: Mapping[str, Json]
    runtime: Mapping[str, Json]
    now_us: Callable[[], int]
    random: Callable[[], float]
    dispatching: Callable[[], Awaitable[None]]
    log: Callable[[str], None]
    reach: Callable[[str], None]
    open_http: Callable[[Context], HttpClient] | None = None
    step_timeout_s: float | None = None
    key_header: str = "Idempotency-Key"
    document_params: Json = None
    """The params as the author wrote them, templates unresolved: which host came from whom."""
    mode: Mode | None = None
    """The mode in force for this call; None leaves the handler to its own default."""
    _http: HttpClient | None = None

    @property
    def http(self) -> HttpClient:
        """The guarded HTTP client, made at first use."""
        if self._http is None:
            if self.open_http is None:
                raise InputError("this handler runs where no network is provided")
            self._http = self.open_http(self)
        return self._http


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a receipt shows of a request before it is sent; never a secret, never a query string.

    key: the idempotency key the step itself sets, if any; null lets the intent's id be sent.
    """

    method: str | None = None
    destination: str | None = None
    key: str | None = None
    mode: Mode | None = None


HandlerFunction = Callable[[Context, Any], Any]


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """One handler as the registry knows it.

    kind: None for a pure handler (no receipt). marks_dispatch: the handler says itself when it
    sends, by `ctx.dispatching()` or the first byte of `ctx.http`; without it the moment before the
    call counts. facts: what to show of a request, from its resolved params.
    """

    name: str
    call: HandlerFunction
    kind: EffectKind | None = EffectKind.WORKER
    mode: Mode = Mode.AT_MOST_ONCE
    params: type[BaseModel] | None = None
    marks_dispatch: bool = False
    is_builtin: bool = False
    facts: Callable[[Json], RequestFacts] | None = None
    raw_params: frozenset[str] = frozenset()
    """Top-level params that the handler reads as the author wrote them; templates in them stay."""
    summary: str = ""

    @property
    def is_effect(self) -> bool:
        """True if calls of this handler get a receipt."""
        return self.kind is not None

    def validated(self, params: Json) -> Any:
        """The params as the handler wants them; raises ParamsInvalid naming every bad field."""
        if self.params is None:
            return params
        from pydantic import ValidationError

        try:
            return self.params.model_validate({} if params is None else params, strict=False)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            parts = [self._fault_text(fault["loc"], fault["type"], fault["msg"]) for fault in faults]
            raise ParamsInvalid(
                f"{self.name}: " + "; ".join(parts),
                hint=f"`orch8-local handlers show {self.name}` lists the params",
            ) from None

    def _fault_text(self, place: tuple[int | str, ...], kind: str, message: str) -> str:
        """One fault with its place; a param that does not exist is answered with the nearest one."""
        path = "params" + "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in place)
        if kind != "extra_forbidden" or self.params is None or len(place) != 1:
            return f"{path}: {message.removeprefix('Value error, ')}"
        names = list(self.params.model_fields)
        near = difflib.get_close_matches(str(place[0]), names, n=1)
        rest = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(names) or 'none'}"
        return f"{path}: there is no such param; {rest}"


def handler(
    name: str,
    *,
    kind: str | None = "worker",
    mode: str = "at_most_once",
    params: type[BaseModel] | None = None,
    marks_dispatch: bool = False,
) -> Callable[[HandlerFunction], HandlerFunction]:
    """Declare a handler. `kind=None` says: pure, no action outside this process.

    Raises ValueError at once for an unknown kind or mode.
    """
    spec_kind = None if kind is None else EffectKind(kind)
    spec_mode = Mode.NONE if kind is None else Mode(mode)

    def declare(function: HandlerFunction) -> HandlerFunction:
        summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
        spec = HandlerSpec(name, function, spec_kind, spec_mode, params, marks_dispatch, summary=summary)
        function.orch8_handler = spec  # type: ignore[attr-defined]
        return function

    return declare


def spec_of(function: Any) -> HandlerSpec:
    """The spec that `@handler` left on a function; raises InputError if it has none."""
    spec = getattr(function, "orch8_handler", None)
    if not isinstance(spec, HandlerSpec):
        raise InputError(f"{function!r} is not a handler", hint="decorate it with @handler(name)")
    return spec


class Registry:
    """All handlers of one program, by name."""

    def __init__(self, specs: Iterable[HandlerSpec] = ()) -> None:
        self._specs: dict[str, HandlerSpec] = {}
        for spec in specs:
            self.add(spec)

    def add(self, spec: HandlerSpec) -> None:
        """Add one; a second one of the same name is refused."""
        if spec.name in self._specs:
            raise AlreadyExists(f"there are two handlers called {spec.name!r}", hint="rename one of them")
        self._specs[spec.name] = spec

    def get(self, name: str) -> HandlerSpec:
        """The handler, or NotFound with the nearest name."""
        try:
            return self._specs[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._specs, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`orch8-local handlers list` shows all"
            raise NotFound(f"there is no handler {name!r}", hint=hint) from None

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._specs)

    def specs(self) -> list[HandlerSpec]:
        """All handlers, by name."""
        return [self._specs[name] for name in self.names()]


__all__ = [
    "Context",
    "HandlerSpec",
    "HttpClient",
    "Outcome",
    "Refused",
    "Registry",
    "Rejected",
    "RequestFacts",
    "handler",
    "spec_of",
]
