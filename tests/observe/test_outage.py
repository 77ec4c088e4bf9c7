"""An outage fills no log: one line for each thing that is wrong, then now and then, until the store is back."""

from __future__ import annotations

import logging

import pytest

from jobyard.domain import events as e
from jobyard.errors import StoreUnavailable
from jobyard.observe import logs
from jobyard.observe.logs import LogObserver


def test_the_same_trouble_is_said_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("jobyard.observe.logs.time.monotonic", lambda: now)
    observer = LogObserver()
    caplog.set_level(logging.WARNING, "jobyard")

    def errors() -> int:
        return sum(record.levelno == logging.ERROR for record in caplog.records)

    for doing in ("exchanging jobs", "renewing leases", "saying that it lives") * 10:
        observer.observe(e.StoreTrouble(doing, StoreUnavailable("it is away"), 1.0))
    assert errors() == 1
    observer.observe(e.StoreTrouble("exchanging jobs", StoreUnavailable("it wants a password"), 1.0))
    assert errors() == 2
    now += logs.SAY_AGAIN_SECONDS
    observer.observe(e.StoreTrouble("exchanging jobs", StoreUnavailable("it is away"), 1.0))
    assert errors() == 3
    observer.observe(e.StoreBack(12.0))
    observer.observe(e.StoreTrouble("exchanging jobs", StoreUnavailable("it is away"), 1.0))
    assert errors() == 4
