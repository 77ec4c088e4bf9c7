"""Alerts: sent once, repeated while they last, resolved, and delivered by apprise to a real HTTP receiver."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.cli.support import Shop, error_code, shop
from tests.conformance.support import claim_one, new

from jobyard.errors import ConfigurationError
from jobyard.observability.notifications import Notifier
from jobyard.operations.alerts import GRACE_SECONDS, AlertSettings, AlertWatcher
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock
from jobyard.worker.heartbeat import Heartbeat

__all__ = ["shop"]

SETTINGS = AlertSettings(queue_length=2, repeat_seconds=600)


class Sent:
    def __init__(self) -> None:
        self.titles: list[str] = []
        self.texts: list[str] = []
        self.works = True

    async def __call__(self, title: str, text: str) -> bool:
        if self.works:
            self.titles.append(title)
            self.texts.append(text)
        return self.works


def worker(name: str) -> WorkerInfo:
    return WorkerInfo(id=name, host="h", pid=7, queues=(), concurrency=2, running=1)


async def test_a_long_queue_is_reported_once_repeated_and_resolved() -> None:
    clock, sent = ManualClock(), Sent()
    store = MemoryStore(clock)
    watchers = [AlertWatcher(store, SETTINGS, sent) for _ in range(2)]  # of two servers

    async def look() -> list[str]:
        sent.titles.clear()
        for watcher in watchers:
            await watcher.run_once()
        return list(sent.titles)

    await store.insert([new(id="a"), new(id="b")])
    assert await look() == [], "at the threshold"
    await store.insert([new(id="c")])
    assert await look() == ["jobyard: queue default is long"]
    assert sent.texts == ["3 jobs wait in queue default, 0 are running; the threshold is 2."]
    assert await look() == []
    clock.advance(601)
    assert await look() == ["jobyard: queue default is long"]
    for _ in range(2):
        await claim_one(store)
    assert await look() == ["jobyard: queue default is no longer long"]
    assert await look() == []


async def test_a_lost_worker_is_reported_and_a_stopped_one_is_not() -> None:
    clock, sent = ManualClock(), Sent()
    store = MemoryStore(clock)
    watcher = AlertWatcher(store, SETTINGS, sent)
    lost, stopping = (Heartbeat(partial(worker, name), lambda _: None, 10) for name in ("lost", "stopped"))
    for each in (lost, stopping):
        await each.send(store)
    await watcher.run_once()
    await stopping.deregister(store)
    await watcher.run_once()
    assert sent.titles == []
    clock.advance(11)
    sent.works = False
    await watcher.run_once()
    clock.advance(GRACE_SECONDS)
    await watcher.run_once()
    assert sent.titles == [], "the service did not accept it"
    sent.works = True
    for _ in range(3):
        await watcher.run_once()
    assert sent.titles == ["jobyard: worker lost is lost"]
    text = "It ran on h (pid 7) and has not reported for 26 s. Unless it reports again, its jobs run elsewhere."
    assert sent.texts == [text]
    unwatched = AlertWatcher(store, AlertSettings(queue_length=None, worker_lost=False), sent)
    await unwatched.run_once()
    assert len(sent.titles) == 1


async def test_a_worker_that_could_not_report_for_a_while_is_not_lost() -> None:
    clock, sent = ManualClock(), Sent()
    store = MemoryStore(clock)
    watcher = AlertWatcher(store, SETTINGS, sent)
    beat, other = (Heartbeat(partial(worker, name), lambda _: None, 10) for name in ("alive", "killed"))
    await beat.send(store)
    await other.send(store)
    await watcher.run_once()
    clock.advance(12)  # the store was locked, and is free again; the heartbeat comes a moment later
    await watcher.run_once()
    await beat.send(store)
    for _ in range(3):
        clock.advance(SETTINGS.interval_seconds / 2)
        await watcher.run_once()
        await beat.send(store)
    assert sent.titles == ["jobyard: worker killed is lost"]


class Receiver:
    def __init__(self, port: int) -> None:
        self.url = f"json://127.0.0.1:{port}/hook"
        self.received: list[dict[str, Any]] = []
        self.answer = b""
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.status = 200


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            receiver.may_answer.wait(30)
            self.send_response(receiver.status)
            self.send_header("Content-Length", str(len(receiver.answer)))
            self.end_headers()
            self.wfile.write(receiver.answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server.server_address[1])
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield receiver
        finally:
            receiver.may_answer.set()
            server.shutdown()
            serving.join()


async def test_apprise_delivers_to_all_services_or_says_that_it_did_not(caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as one, receiving() as other:
        notifier = Notifier([one.url, other.url])
        assert await notifier.send("a title", "a text")
        for each in (one, other):
            [message] = each.received
            assert (message["title"], message["message"]) == ("a title", "a text")
        other.status = 500
        assert not await notifier.send("again", "a text")
    assert caplog.messages == ["an alert could not be sent to entry 2 (json://…) of alerts.urls"]


async def test_a_service_that_hangs_is_given_up() -> None:
    with receiving() as receiver:
        receiver.may_answer.clear()
        assert not await Notifier([receiver.url], timeout_seconds=0.05).send("a title", "a text")


def test_webhooks_of_slack_and_discord_are_understood_as_they_are() -> None:
    pytest.importorskip("apprise")
    Notifier([
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "https://discord.com/api/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    ])  # fmt: skip
    with pytest.raises(ConfigurationError) as caught:
        Notifier(["slakc://secret-token"])
    assert "secret-token" not in str(caught.value)


async def test_slack_and_discord_receive_what_their_webhooks_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("apprise")
    from apprise.plugins.discord import NotifyDiscord  # noqa: PLC0415
    from apprise.plugins.slack import NotifySlack  # noqa: PLC0415

    with receiving() as slack, receiving() as discord:
        slack.answer = b"ok"  # Slack answers so, and anything else is an error
        for plugin, name, receiver in (
            (NotifySlack, "webhook_url", slack),
            (NotifyDiscord, "notify_url", discord),
        ):
            monkeypatch.setattr(plugin, name, receiver.url.replace("json://", "http://").rstrip("/"))
        notifier = Notifier([
            "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
            "https://discord.com/api/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
        ])  # fmt: skip
        assert await notifier.send("a title", "a text")
        assert slack.received[0]["attachments"][0]["text"] == "a text"
        assert "a text" in discord.received[0]["content"]


def test_a_test_message_is_sent_from_the_command_line(shop: Shop) -> None:
    assert error_code(shop.run("alerts", "test")) == "configuration"
    with receiving() as receiver:
        result = shop.run("alerts", "test", JOBYARD_ALERTS__URLS=receiver.url)
        assert result.exit_code == 0, result.output
        assert [message["title"] for message in receiver.received] == ["jobyard: test"]
        receiver.status = 500
        assert error_code(shop.run("alerts", "test", JOBYARD_ALERTS__URLS=receiver.url)) == "not_possible"
    assert receiver.url not in shop.run("config", "show", JOBYARD_ALERTS__URLS=receiver.url).output
