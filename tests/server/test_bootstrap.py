"""Server start: address, access, job factory and greeting."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from jobyard import Context, Jobyard
from jobyard.app.declarations import job_factory
from jobyard.cli.render.greeting import greeting, sample_job, try_next
from jobyard.config.sections import ServerSection
from jobyard.domain.access import Role
from jobyard.errors import BadInput, ConfigurationError, UnknownKind
from jobyard.operations.audit_log import Audit
from jobyard.operations.tokens import Tokens
from jobyard.server.auth import TokenAuthenticator
from jobyard.server.bootstrap import Access, bootstrap_access
from jobyard.server.dependencies import OpenAccess
from jobyard.server.server import listen, url_of

SETTINGS = ServerSection()
ANY = "0.0.0.0"


@pytest.fixture
async def yard() -> AsyncIterator[Jobyard]:
    yard = Jobyard("memory://")

    @yard.job(queue="models")
    async def train(ctx: Context, settings: dict[str, set[int]]) -> None: ...

    @yard.job(queue="mail", max_attempts=7, timeout=20)
    async def send(ctx: Context, to: str, copies: int, urgent: bool = False) -> None: ...

    async with yard:
        yield yard


@contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with listen(host, 0) as listener:
        yield listener


def test_port_in_use() -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port}.*--port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no such host", "nowhere.invalid", "203.0.113.1"])
def test_foreign_address_is_rejected(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"listen on"):
        listen(host, 0)


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), (ANY, "127.0.0.1")]
)
def test_shown_url_is_reachable(host: str, shown: str) -> None:
    with listening(host) as listener:
        url = url_of(listener)
        assert url == f"http://{shown}:{listener.getsockname()[1]}"
        socket.create_connection((shown, int(url.rpartition(":")[2]))).close()


async def test_first_start_on_loopback_creates_a_token(yard: Jobyard) -> None:
    with listening() as listener:
        first = await bootstrap_access(yard.store, listener, SETTINGS, insecure=False)
        again = await bootstrap_access(yard.store, listener, SETTINGS, insecure=False)
    assert isinstance(first.authenticator, TokenAuthenticator)
    assert first.first_token is not None
    principal = await Tokens(yard.store).authenticate(first.first_token)
    assert principal is not None
    assert principal.role is Role.ADMIN
    assert (again.first_token, len(await Tokens(yard.store).list())) == (None, 1)
    [written] = await Audit(yard.store).read()
    assert (written.action, written.target) == ("token.create", principal.id)
    assert first.first_token.split("_", 2)[2] not in str(written)


async def test_other_addresses_require_a_token(yard: Jobyard) -> None:
    with listening(ANY) as listener:
        with pytest.raises(ConfigurationError, match="jobyard tokens create"):
            await bootstrap_access(yard.store, listener, SETTINGS, insecure=False)
        assert await Tokens(yard.store).list() == []
        await Tokens(yard.store).create("mine", "viewer")
        made = await bootstrap_access(yard.store, listener, SETTINGS, insecure=False)
        assert (made.is_open, made.first_token) == (False, None)
        with pytest.raises(ConfigurationError, match="loopback only"):
            await bootstrap_access(yard.store, listener, SETTINGS, insecure=True)


async def test_a_given_admin_token_is_created_once(yard: Jobyard) -> None:
    text = "jy_0123456789ab_" + "s" * 43
    with listening(ANY) as listener:
        for _ in range(2):
            made = await bootstrap_access(yard.store, listener, SETTINGS, insecure=False, admin_token=text)
            assert (made.is_open, made.first_token) == (False, None)
        [token] = await Tokens(yard.store).list()
        assert (token.id, token.name, token.role) == ("0123456789ab", "bootstrap", "admin")
        principal = await Tokens(yard.store).authenticate(text)
        assert principal is not None
        [written] = await Audit(yard.store).read()
        assert (written.action, written.target) == ("token.create", token.id)
        assert "s" * 43 not in str(written)
        await Tokens(yard.store).create("other", "admin")
        assert await Tokens(yard.store).revoke(token.id)
        await bootstrap_access(yard.store, listener, SETTINGS, insecure=False, admin_token=text)
        assert [each.name for each in await Tokens(yard.store).list()] == ["other"]  # a revoked token stays revoked


async def test_a_given_text_that_is_not_a_token_is_rejected_without_showing_it(yard: Jobyard) -> None:
    with listening() as listener, pytest.raises(ConfigurationError, match="JOBYARD_ADMIN_TOKEN") as caught:
        await bootstrap_access(yard.store, listener, SETTINGS, insecure=False, admin_token="my-own-secret")
    assert "my-own-secret" not in str(caught.value)


async def test_insecure_is_open_on_loopback_only(yard: Jobyard) -> None:
    with listening() as listener:
        made = await bootstrap_access(yard.store, listener, SETTINGS, insecure=True)
    assert isinstance(made.authenticator, OpenAccess)
    assert (made.is_open, await Tokens(yard.store).list()) == (True, [])


def test_jobs_get_the_options_of_their_handler(yard: Jobyard) -> None:
    make = job_factory(yard, has_app=True)
    job = make.new_job("send", {"to": "a", "copies": 1}, {"priority": 3}, "an-id")
    assert (job.id, job.queue, job.max_attempts, job.timeout_seconds, job.priority) == ("an-id", "mail", 7, 20, 3)
    assert (
        make.new_job("send", {"to": "a", "copies": 1}, {}).id != make.new_job("send", {"to": "a", "copies": 1}, {}).id
    )
    assert make.new_job("send", {"to": "a", "copies": 1}, {"private": {"key": 1}}).private_payload == b'{"key":1}'
    with pytest.raises(UnknownKind, match="Did you mean"):
        make.new_job("sent", {}, {})
    for payload in ({"to": 1, "copies": 1}, {"to": "a"}, {"to": "a", "copies": 1, "more": 1}):
        with pytest.raises(BadInput, match="does not fit send"):
            make.new_job("send", payload, {})
    kinds = make.kinds()
    assert kinds is not None
    assert [(kind.name, kind.queue, kind.parameters) for kind in kinds] == [
        ("send", "mail", ("to", "copies", "urgent")),
        ("train", "models", ("settings",)),
    ]


def test_any_kind_is_accepted_without_an_app(yard: Jobyard) -> None:
    make = job_factory(yard, has_app=False)
    assert make.kinds() is None
    assert make.new_job("whatever", {"a": 1}, {}).kind == "whatever"
    with pytest.raises(BadInput):
        make.new_job("whatever", [], {})


def test_suggested_commands_match_a_handler(yard: Jobyard) -> None:
    assert sample_job(yard) == {"kind": "send", "payload": {"to": "example", "copies": 1}}
    assert sample_job(Jobyard("memory://")) == {"kind": "example", "payload": {}}
    assert all("Bearer $JOBYARD_TOKEN" in line for line in try_next("http://h", yard))
    assert not any("JOBYARD_TOKEN" in line for line in try_next("http://h", yard, is_open=True))


def test_token_is_shown_only_once(yard: Jobyard) -> None:
    first = "\n".join(greeting("http://h", yard, Access(OpenAccess(), False, "jy_secret"), "API only"))
    own = {"mail": "redis://mail-host"}
    later = "\n".join(greeting("http://h", yard, Access(OpenAccess(), False, None), "API only", own))
    assert "\nQueue mail is in redis://mail-host.\n" in later
    assert "export JOBYARD_TOKEN=jy_secret" in first
    assert "jy_" not in later
    assert "jobyard tokens create" in later
