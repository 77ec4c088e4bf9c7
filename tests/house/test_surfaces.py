"""The library, the client and the blocking client have the same verbs, with the same arguments and results."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from jobyard import JobHandle, Jobyard, QueueInfo
from jobyard.api.schemas.queues import QueueView
from jobyard.client import BlockingClient, BlockingJob, Client, RemoteJob
from jobyard.testing import blocking, kit

# What only a server has: other people's tokens, its live streams, its runners and workflow files, submitted programs.
OF_A_SERVER = {
    *("audit", "create_token", "health", "me", "revoke_token", "rotate_token", "tokens", "url"),
    *("events", "job_events"),
    *("requeue_runner_job", "runner_job", "runner_jobs", "runner_orgs", "runner_pods"),
    *("cancel_workflow", "run_workflow", "workflow_run", "workflows"),
    *("execute", "execution", "languages", "output"),
    "next_of_cron",
}
# What only a program has: declarations, workers, schedulers, compositions, its store.
OF_A_PROGRAM = {
    *("cron", "job", "workflow"),
    *("batch", "chain", "chord", "group"),
    *("blocking", "open", "scheduler", "trace", "using", "worker"),
}
# `yard.queue(…)` declares a queue, and prepared jobs know their handler.
DIFFERENT = {"enqueue", "enqueue_many", "job_handle", "queue", "close"}


def verbs(surface: type) -> set[str]:
    return {name for name in dir(surface) if not name.startswith("_") and name not in ("store", "wait", "client")}


def signature(surface: type, name: str) -> tuple[list[tuple[str, Any, Any]], Any]:
    function = getattr(surface, name)
    hints = get_type_hints(inspect.unwrap(function))
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [(each.name, each.kind, each.default) for each in parameters], hints.get("return")


def test_every_verb_is_on_both_surfaces_or_named_here() -> None:
    library, client = verbs(Jobyard), verbs(Client)
    assert client - library - OF_A_SERVER == set()
    assert library - client - OF_A_PROGRAM == {"max_payload_bytes"} & library
    assert client >= OF_A_SERVER
    assert library >= OF_A_PROGRAM


@pytest.mark.parametrize("name", sorted(verbs(Jobyard) & verbs(Client) - DIFFERENT))
def test_a_verb_has_the_same_arguments_and_results(name: str) -> None:
    own, remote = signature(Jobyard, name), signature(Client, name)
    assert own[0] == remote[0]
    # A client's counts may be None, for a token that must not see them; the next test compares the fields.
    assert str(own[1]).replace("ports.admin_store.QueueInfo", "api.schemas.queues.QueueView") == str(remote[1])


def test_the_counts_of_a_queue_have_the_same_names() -> None:
    assert {*QueueInfo.__struct_fields__} == {*QueueView.__struct_fields__} - {"finished_per_minute"}


def test_the_handles_have_the_same_verbs() -> None:
    own = verbs(JobHandle)
    assert verbs(RemoteJob) | {"wait"} == own | {"wait"}
    assert verbs(BlockingJob) | {"wait"} == own | {"wait"}
    for name in own:
        assert signature(JobHandle, name)[0] == signature(RemoteJob, name)[0], name
        assert signature(JobHandle, name)[0] == signature(BlockingJob, name)[0], name


def test_the_blocking_client_has_every_verb() -> None:
    assert verbs(Client) - verbs(BlockingClient) == {"url"}
    assert verbs(BlockingClient) - verbs(Client) == {"open"}


@pytest.mark.parametrize("name", ["assert_enqueued", "drain", "inline", "isolated", "refute_enqueued"])
def test_the_test_kits_are_twins(name: str) -> None:
    own = [(each.name, each.kind, each.default) for each in inspect.signature(getattr(kit, name)).parameters.values()]
    twin = inspect.signature(getattr(blocking, name)).parameters.values()
    assert own == [(each.name, each.kind, each.default) for each in twin]
