"""Where a request may go, who chose the host, and the moment it leaves."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence

import httpx
import pytest

from orch8_local.errors import DiskFull, EgressRefused
from orch8_local.handlers.egress import (
    Call,
    Egress,
    EgressPolicy,
    GuardedClient,
    Provenance,
    Reading,
    allowed_addresses,
    checked_headers,
    checked_url,
    host_provenance,
    open_http,
    system_resolver,
)
from orch8_local.handlers.http import HTTP_REQUEST
from orch8_local.testing.provider import Provider, Reply
from tests.handlers.conftest import MakeStep

PROVENANCES = [
    ("http://127.0.0.1:8080/x", "author"),
    ("http://127.0.0.1:8080/x/{{ data.y }}", "author"),
    ("http://127.0.0.1:8080?q={{ data.y }}", "author"),
    ("https://api.example", "author"),
    ("{{ context.config.base_url }}/albums/{{ data.album | url_encode }}", "operator"),
    ("{{ config.base_url }}", "operator"),
    ("{{ config.base_url }}?q={{ data.q }}", "operator"),
    ("http://{{ config.host }}:8080/x", "operator"),
    ("http://{{ config.host }}:{{ context.config.port }}/x", "operator"),
    ("{{ config.scheme }}://127.0.0.1/x", "operator"),
    ("{{ config.base_url | 'http://127.0.0.1:8099' }}/x", "operator"),
    ("{{ config.base_url | '}}' }}/x", "operator"),
    ("{{ data.url }}", "data"),
    ("{{ input.url }}/x", "data"),
    ("{{ outputs.find.url }}/x", "data"),
    ("{{ state.url }}/x", "data"),
    ("{{ context.data.url }}/x", "data"),
    ("{{ config.base_url | data.fallback }}/x", "data"),
    ("{{ config.base_url }}{{ data.path }}", "data"),
    ("http://127.0.0.1{{ data.rest }}", "data"),
    ("http://127.0.0.1:80{{ data.port }}/x", "data"),
    ("http://{{ data.host }}.example.org/x", "data"),
    ("http://{{ data.user }}@127.0.0.1/x", "data"),
    ("{{ data.scheme }}://127.0.0.1/x", "data"),
    ("{{ config.base_url", "data"),
    ("{{ config.a }} can't {{ data.b }}", "data"),
    ("\0/x", "data"),
    ("/relative/path", "data"),
    ("", "data"),
]


@pytest.mark.parametrize(("url", "source"), PROVENANCES)
def test_the_document_tells_who_chose_the_host(url: str, source: str) -> None:
    """Only what stands before the path counts, and whatever run data can touch is data's choice."""
    assert host_provenance(url) == Provenance(source)


REFUSED_URLS = [
    "ftp://a.example/x",
    "file:///etc/passwd",
    "gopher://127.0.0.1/x",
    "a.example/x",
    "null/x",
    "http:///x",
    "http://user@a.example/x",
    "http://user:pass@a.example/x",
    "http://a.example:0/x",
    "http://a.example:99999/x",
    "http://a.example:port/x",
    "http://a.example/x\r\nHost: b.example",
    "http://a.example/x y",
    "http://a.example\\@b.example/",
    "http://a.example/\0",
    "http://a.example/a#b",
    "http://a.example/a/../b",
    "http://a.example/a/%2e%2E/b",
    "http://[::1/x",
]


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_a_url_that_could_mean_something_else_is_refused(url: str) -> None:
    """Other schemes, user names, bad ports, control characters and rewritten paths send nothing."""
    with pytest.raises(EgressRefused):
        checked_url(url)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "b.example"},
        {"hOsT": "b.example"},
        {"Content-Length": "3"},
        {"Transfer-Encoding": "chunked"},
        {"X-A": "1\r\nX-B: 2"},
        {"X-A": "1\n"},
        {"X A": "1"},
        {"X-A:": "1"},
        {"": "1"},
        {"X-A": "1", "x-a": "2"},
    ],
)
def test_headers_cannot_break_out_or_change_the_framing(headers: dict[str, str]) -> None:
    """Line breaks, bad names, doubles and the headers of the framing are refused with an error."""
    with pytest.raises(EgressRefused):
        checked_headers(headers)


def test_header_values_keep_any_text() -> None:
    """A value is sent as UTF-8, without the white space around it."""
    assert checked_headers({"X-Name": " Zoë "}) == [(b"X-Name", "Zoë".encode())]


POLICY = EgressPolicy(hosts=frozenset({"lab.local", "10.0.0.5:8080", "[::1]:9000"}))


@pytest.mark.parametrize(
    ("host", "port", "addresses", "provenance", "is_allowed"),
    [
        ("a.example", 80, ["1.1.1.1"], "data", True),
        ("a.example", 8443, ["1.1.1.1"], "data", True),
        ("a.example", 22, ["1.1.1.1"], "data", False),
        ("a.example", 80, ["1.1.1.1", "10.0.0.1"], "data", False),
        ("a.example", 80, ["127.0.0.1"], "data", False),
        ("a.example", 80, ["::ffff:127.0.0.1"], "data", False),
        ("a.example", 80, [], "data", False),
        ("lab.local", 80, ["192.168.0.9"], "data", True),
        ("LAB.local.", 22, ["192.168.0.9"], "data", True),
        ("10.0.0.5", 8080, ["10.0.0.5"], "data", True),
        ("10.0.0.5", 8081, ["10.0.0.5"], "data", False),
        ("::1", 9000, ["::1"], "data", True),
        ("::1", 9001, ["::1"], "data", False),
        ("lab.local", 80, ["169.254.169.254"], "data", False),
        ("a.example", 22, ["10.0.0.1"], "author", True),
        ("a.example", 80, ["127.0.0.1"], "operator", True),
        ("a.example", 80, ["169.254.169.254"], "author", False),
        ("a.example", 80, ["fd00:ec2::254"], "operator", False),
        ("a.example", 80, ["64:ff9b::a9fe:a9fe"], "operator", False),
        ("a.example", 80, ["fe80::1%eth0"], "author", False),
    ],
)
def test_the_address_policy(host: str, port: int, addresses: list[str], provenance: str, is_allowed: bool) -> None:
    """Data leads to public or listed hosts only; nothing ever leads to link-local or metadata."""

    def ask() -> list[str]:
        return allowed_addresses(addresses, host=host, port=port, provenance=Provenance(provenance), policy=POLICY)

    if is_allowed:
        assert ask() == addresses
    else:
        with pytest.raises(EgressRefused):
            ask()


def test_the_author_reaches_the_usable_addresses_of_a_host() -> None:
    """A device that announces a link-local address beside a private one is reached by the private one."""
    usable = allowed_addresses(
        ["fe80::1", "192.168.1.7"], host="a", port=80, provenance=Provenance.AUTHOR, policy=POLICY
    )
    assert usable == ["192.168.1.7"]


SPELLINGS = [
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "0x7f.1",
    "2130706433",
    "017700000001",
    "localhost",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[2002:7f00:1::]",
    "[64:ff9b::7f00:1]",
    "0.0.0.0",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "10.0.0.1",
    "100.64.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
]


@pytest.mark.parametrize("host", SPELLINGS)
async def test_every_spelling_of_a_place_that_is_not_public_is_refused(make_step: MakeStep, host: str) -> None:
    """C51: run data cannot name loopback, private or metadata places, however they are spelled."""
    step = make_step(HTTP_REQUEST, {"url": f"http://{host}/latest/"}, written={"url": "{{ data.url }}"})
    outcome = await step.run()
    assert outcome.outcome_class == "not_sent"
    assert not outcome.retryable
    assert outcome.details is not None
    assert outcome.details["error"] == "egress_refused"
    assert step.order == []


async def test_loopback_needs_an_explicit_word(make_step: MakeStep, provider: Provider) -> None:
    """C51: a host from run data may be loopback once the operator lists it."""
    params, written = {"url": f"{provider.url}/x"}, {"url": "{{ data.url }}"}
    refused = await make_step(HTTP_REQUEST, params, written=written).run()
    assert refused.outcome_class == "not_sent"
    assert "[http] hosts" in refused.message
    allowed = await make_step(
        HTTP_REQUEST, params, written=written, hosts=frozenset({provider.url.removeprefix("http://")})
    ).run()
    assert allowed.outcome_class == "confirmed"
    assert len(provider.requests()) == 1


class Changing:
    """A resolver whose answer changes with every question."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0)


async def test_the_connection_goes_to_the_checked_address(make_step: MakeStep, provider: Provider) -> None:
    """C51: a name that resolves otherwise between check and connect has nothing to win."""
    port = provider.url.rpartition(":")[2]
    resolver = Changing(["127.0.0.1"], ["169.254.169.254"])
    egress = Egress(resolver=resolver)
    step = make_step(HTTP_REQUEST, {"url": f"http://bank.example:{port}/x"}, egress=egress)
    outcome = await step.run()
    assert outcome.outcome_class == "confirmed"
    assert resolver.asked == ["bank.example"]
    assert provider.requests()[0].headers["host"] == f"bank.example:{port}"
    again = await make_step(HTTP_REQUEST, {"url": f"http://bank.example:{port}/x"}, egress=egress).run()
    assert again.outcome_class == "not_sent"
    assert "169.254.169.254" in again.message


async def test_the_next_address_is_tried_when_one_refuses(make_step: MakeStep, provider: Provider) -> None:
    """A host with several addresses is reached by the first that accepts, before anything is sent."""
    port = provider.url.rpartition(":")[2]
    egress = Egress(resolver=Changing(["127.0.0.2", "::1", "127.0.0.1"]))
    step = make_step(HTTP_REQUEST, {"url": f"http://bank.example:{port}/x"}, egress=egress)
    assert (await step.run()).outcome_class == "confirmed"
    assert step.n_dispatches == 1


async def test_a_name_without_address_is_not_sent_and_may_be_retried(make_step: MakeStep) -> None:
    """Offline is the common failure on a flaky link, and costs nothing."""

    async def offline(host: str, port: int) -> Sequence[str]:
        raise OSError(-3, "Temporary failure in name resolution")

    step = make_step(HTTP_REQUEST, {"url": "http://bank.example/x"}, egress=Egress(resolver=offline))
    outcome = await step.run()
    assert outcome.outcome_class == "not_sent"
    assert outcome.retryable
    assert "Temporary failure in name resolution" in outcome.message
    assert step.order == []


async def test_the_systems_resolver_gives_each_address_once() -> None:
    """The addresses of a host come as text, in the resolver's order, without doubles."""
    found = await system_resolver("127.0.0.1", 80)
    assert found == ["127.0.0.1"]


async def test_proxies_of_the_environment_are_ignored(
    make_step: MakeStep, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy variable does not send a request elsewhere."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    outcome = await make_step(HTTP_REQUEST, {"url": f"{provider.url}/x"}).run()
    assert outcome.outcome_class == "confirmed"


# --- the first byte ------------------------------------------------------------------------------


async def test_the_dispatch_is_marked_after_the_connection_and_before_the_first_byte(
    make_step: MakeStep, provider: Provider
) -> None:
    """T1 is on disk before the request line is written, and the provider has seen no byte until then."""
    seen: list[tuple[int, int]] = []

    async def on_disk() -> None:
        await provider.wait_for("connection")
        seen.append((provider.count("connection"), provider.count("first_byte")))

    step = make_step(
        HTTP_REQUEST, {"method": "POST", "url": f"{provider.url}/x", "body": {"a": 1}}, dispatching=on_disk
    )
    await step.run()
    assert seen == [(1, 0)]
    assert step.order == ["c2_connected", "dispatching", "dispatched", "c3_after_t1", "c4_after_first_byte"]


async def test_no_byte_leaves_if_the_dispatch_is_refused(make_step: MakeStep, provider: Provider) -> None:
    """What `dispatching()` raises comes out unchanged, and nothing was sent."""

    async def full() -> None:
        raise DiskFull("no space")

    step = make_step(HTTP_REQUEST, {"method": "POST", "url": f"{provider.url}/x"}, dispatching=full)
    with pytest.raises(DiskFull):
        await step.run()
    await provider.wait_for("connection")
    assert provider.count("first_byte") == 0
    assert step.order == ["c2_connected", "dispatching"]


async def test_a_timeout_raised_by_the_dispatch_is_not_taken_for_the_requests_own(
    make_step: MakeStep, provider: Provider
) -> None:
    """An error of the ledger is never an outcome of the step, also if it is a TimeoutError."""

    async def slow_disk() -> None:
        raise TimeoutError("the disk")

    step = make_step(HTTP_REQUEST, {"method": "POST", "url": f"{provider.url}/x"}, dispatching=slow_disk)
    with pytest.raises(TimeoutError, match="the disk"):
        await step.run()


async def test_the_disks_time_is_not_the_requests_time(make_step: MakeStep, provider: Provider) -> None:
    """The limit of a request stands still while its dispatch is written."""
    loop = asyncio.get_running_loop()

    async def slow_disk() -> None:
        until = loop.time() + 0.3
        while loop.time() < until:
            await asyncio.sleep(0.01)

    step = make_step(
        HTTP_REQUEST,
        {"method": "POST", "url": f"{provider.url}/x", "timeout_ms": 200},
        dispatching=slow_disk,
    )
    assert (await step.run()).outcome_class == "confirmed"


# --- ctx.http ------------------------------------------------------------------------------------


def client_of(make_step: MakeStep) -> tuple[GuardedClient, list[str]]:
    step = make_step(HTTP_REQUEST, {})
    client = step.ctx.http
    assert isinstance(client, GuardedClient)
    return client, step.order


async def test_a_handlers_client_sends_the_key_and_marks_once(make_step: MakeStep, provider: Provider) -> None:
    """`ctx.http` marks the dispatch at the first byte of the first request, and sends the intent's key."""
    client, order = client_of(make_step)
    answers = [await client.post(f"{provider.url}/a", json={"n": 1}), await client.get(f"{provider.url}/b")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == {"receipt_id": "r-1"}
    assert [request.key for request in provider.requests()] == ["key-1", None]
    assert order.count("dispatching") == 1


async def test_parallel_requests_wait_for_one_dispatch(make_step: MakeStep, provider: Provider) -> None:
    """Two requests of one handler at once are one dispatch, and neither leaves before it is on disk."""
    client, order = client_of(make_step)
    await asyncio.gather(client.put(f"{provider.url}/a"), client.delete(f"{provider.url}/b"))
    assert order.count("dispatching") == 1
    assert len(provider.requests()) == 2


async def test_a_handlers_own_key_header_wins(make_step: MakeStep, provider: Provider) -> None:
    """A handler that sets the key itself is not overruled."""
    client, _ = client_of(make_step)
    await client.patch(f"{provider.url}/a", headers={"idempotency-key": "mine"}, content=b"x")
    assert provider.requests()[0].key == "mine"


async def test_code_is_trusted_with_hosts_but_not_with_metadata(make_step: MakeStep) -> None:
    """A handler may reach any host of the operator's network, and never a metadata service."""
    client, order = client_of(make_step)
    with pytest.raises(EgressRefused, match="cloud metadata"):
        await client.get("http://169.254.169.254/latest/")
    assert order == []


async def test_a_handlers_client_follows_no_redirect(make_step: MakeStep, provider: Provider) -> None:
    """The answer of the first hop is the answer."""
    provider.script = [Reply(status=302, headers={"Location": f"{provider.url}/b"})]
    client, _ = client_of(make_step)
    answer = await client.post(f"{provider.url}/a")
    assert answer.status_code == 302
    assert [request.path for request in provider.requests()] == ["/a"]


async def test_a_handlers_client_raises_the_transport_errors_of_httpx(make_step: MakeStep, provider: Provider) -> None:
    """Custom code handles httpx errors as everywhere; after the first byte they are ambiguous."""
    provider.script = [Reply("hang")]
    client, _ = client_of(make_step)
    with pytest.raises(httpx.ReadTimeout):
        await client.post(f"{provider.url}/a", timeout_s=1)
    assert client.is_started


async def test_a_cut_answer_says_so(make_step: MakeStep, provider: Provider) -> None:
    """A handler can tell a whole body from a part."""
    provider.script = [Reply("half_body")]
    client, _ = client_of(make_step)
    answer = await client.post(f"{provider.url}/a")
    assert answer.status_code == 200
    assert "cut short" in answer.extensions["cut"]


async def test_the_default_way_out_lists_no_hosts(make_step: MakeStep) -> None:
    """Without settings, run data reaches public hosts only."""
    client = open_http(make_step(HTTP_REQUEST, {}).ctx)
    call = Call("POST", "http://127.0.0.1:8099/x", provenance=Provenance.DATA)
    with pytest.raises(EgressRefused, match="loopback"):
        await client.exchange(call)


# --- reading -------------------------------------------------------------------------------------


def read(chunks: list[bytes], limit_bytes: int, encoding: str = "") -> tuple[bytes, str | None]:
    reading = Reading(limit_bytes)
    reading.begin(200, [(b"Content-Encoding", encoding.encode())] if encoding else [])
    for chunk in chunks:
        if reading.add(chunk):
            break
    return reading.body(), reading.cut


def test_reading_stops_at_the_limit() -> None:
    """An answer is kept up to its limit, and the limit is named."""
    assert read([b"abc", b"def"], 6) == (b"abcdef", None)
    body, cut = read([b"abc", b"defg"], 6)
    assert body == b"abcdef"
    assert cut == "the answer is larger than the limit of 6 bytes"


def test_a_compressed_answer_is_bounded_after_decompression() -> None:
    """A small answer that unpacks to a huge one is cut at the same limit."""
    packed = gzip.compress(b"a" * 1_000_000)
    assert read([packed], 2_000_000, "gzip") == (b"a" * 1_000_000, None)
    body, cut = read([packed], 5_000, "gzip")
    assert len(body) == 5_000
    assert cut is not None
    assert "limit" in cut


def test_a_broken_compressed_answer_is_not_whole() -> None:
    """What cannot be unpacked is kept as it came, and not called complete."""
    packed = gzip.compress(b"hello")
    assert read([b"nonsense"], 100, "gzip")[1] == "the answer cannot be decompressed"
    assert read([packed[:-4]], 100, "gzip")[1] == "the compressed answer ends too early"
