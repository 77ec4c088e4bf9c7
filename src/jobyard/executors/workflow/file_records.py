"""What a run of a workflow file records: the keys of its steps, and the states of steps from its history.

␟started            the beginning of the run
=extract            a step that completed, with its output; with `for_each`, that all its items have ended
=scan/7             an item of `for_each` that completed, with its output
=scan␟failed1       a step or an item that failed for good, in round 1
=scan␟try1-2        its second failed attempt in round 1
␟round2             the beginning of another round: the job was retried by hand, and failed steps run again
=alert#2            a step of `on_failure` that completed in round 2; in round 1, `=alert`
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Ending, Job
from jobyard.domain.workflow_files.definition import StepDefinition, WorkflowDefinition
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.domain.workflow_files.scheduler import items_state
from jobyard.domain.workflow_files.source import Format
from jobyard.domain.workflow_files.step_state import StepState, completed, failed
from jobyard.executors.workflow.records import PART, StepError, StoredRecord, WorkflowRecord, part

# A text up to this long is parsed within milliseconds.
QUICK_CHARACTERS = 20_000
FILE_WORKFLOW = "jobyard.workflow"
STARTED_KEY = f"{PART}started"
_ROUND = f"{PART}round"


class FilePayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a run: the definition travels with it, so that an edit of the file never changes a run."""

    workflow_id: str
    version: int
    digest: str
    text: str
    params: dict[str, Any]
    platform: str | None = None
    file: str = ""
    format: Format = Format.JSON


async def load_definition(payload: FilePayload) -> WorkflowDefinition:
    """The definition of a run. Raises InvalidWorkflow. A large one is parsed in a thread: it takes seconds at most."""
    parse = partial(_parse, payload.text, payload.file or payload.workflow_id, payload.format)
    return parse() if len(payload.text) <= QUICK_CHARACTERS else await asyncio.to_thread(parse)


@lru_cache(maxsize=20)
def _parse(text: str, file: str, text_format: Format) -> WorkflowDefinition:
    return parse_workflow(text, file=file, text_format=text_format)


class StepHistory(msgspec.Struct, frozen=True):
    """How a step or an item ended, and when."""

    state: StepState
    started_at: Instant | None
    finished_at: Instant
    attempts: int


class FileHistory:
    """The history of a run, read by step."""

    def __init__(self, definition: WorkflowDefinition, entries: Mapping[str, StoredRecord]) -> None:
        self._definition = definition
        self._entries = entries
        self._on_failure = {step.id for step in definition.on_failure}
        self.round = 1 + sum(key.startswith(_ROUND) for key in entries)

    @property
    def started_at(self) -> Instant | None:
        stored = self._entries.get(STARTED_KEY)
        return None if stored is None else stored.at

    def key(self, step: StepDefinition, index: int | None = None) -> str:
        again = f"#{self.round}" if self.round > 1 and step.id in self._on_failure else ""
        return f"={step.id}{again}" + ("" if index is None else f"/{index}")

    def failed_key(self, key: str) -> str:
        return part(key, f"failed{self.round}")

    def try_key(self, key: str, number: int) -> str:
        return part(key, f"try{self.round}-{number}")

    def failures(self, key: str) -> list[StoredRecord]:
        """The failed attempts of this round that were followed by a wait."""
        found: list[StoredRecord] = []
        while (tried := self._entries.get(self.try_key(key, len(found) + 1))) is not None:
            found.append(tried)
        return found

    def states(self) -> dict[str, StepState]:
        """The states of the steps that have ended and are recorded; skipped ones are not, they follow from others."""
        found = ((step, self.of_step(step)) for step in self._definition.all_steps())
        return {step.id: each.state for step, each in found if each is not None}

    def of_step(self, step: StepDefinition) -> StepHistory | None:
        key = self.key(step)
        stored = self._entries.get(key)
        if stored is not None and stored.record.count is not None:
            items = (self._item_state(step, index) for index in range(stored.record.count))
            return self._ended(key, stored, items_state(step, items))
        return self._of_key(key)

    def error_of(self, step_id: str) -> StepError | None:
        """Why the step failed in this round, if it ran."""
        step = next(step for step in self._definition.all_steps() if step.id == step_id)
        stored = self._entries.get(self.failed_key(self.key(step)))
        return None if stored is None else stored.record.error

    def of_item(self, step: StepDefinition, index: int) -> StepHistory | None:
        return self._of_key(self.key(step, index))

    def total_items(self, step: StepDefinition) -> int | None:
        """The number of items of a step that has ended."""
        key = self.key(step)
        stored = self._entries.get(key) or self._entries.get(self.failed_key(key))
        return None if stored is None else stored.record.count

    def count_items(self, step: StepDefinition) -> tuple[int, int]:
        """How many items have completed, and how many have failed."""
        base = self.key(step) + "/"
        items = [key for key in self._entries if key.startswith(base)]
        return sum(PART not in key for key in items), sum(key.endswith(f"{PART}failed{self.round}") for key in items)

    def _item_state(self, step: StepDefinition, index: int) -> StepState:
        """An item may have failed in an earlier round than the one in which the step was completed with it."""
        key = self.key(step, index)
        if key in self._entries:
            return completed(_output(self._entries[key].record))
        for number in range(self.round, 0, -1):
            stored = self._entries.get(part(key, f"failed{number}"))
            if stored is not None:
                return _failure(stored.record)
        return failed("The item was not recorded.")

    def _of_key(self, key: str) -> StepHistory | None:
        stored = self._entries.get(key)
        if stored is not None:
            return self._ended(key, stored, completed(_output(stored.record)))
        stored = self._entries.get(self.failed_key(key))
        return None if stored is None else self._ended(key, stored, _failure(stored.record))

    def _ended(self, key: str, stored: StoredRecord, state: StepState) -> StepHistory:
        started_at = stored.record.started_at
        if started_at is not None:
            started_at = min(started_at, stored.at)  # the beginning is an estimate of the store's clock
        return StepHistory(state, started_at, stored.at, len(self.failures(key)) + 1)

    def next_round_key(self, job: Job) -> str | None:
        """The key that begins another round, if the job has ended since a step failed: it was retried then.

        A crash between the failure of a step and the end of the job does not begin one.
        """
        last = max((stored.at for stored in self._failed_in_round()), default=None)
        ends = (error.at for error in job.errors if error.ending not in (Ending.LOST, Ending.QUARANTINED))
        if last is None or not any(at >= last for at in ends):
            return None
        return f"{_ROUND}{self.round + 1}"

    def _failed_in_round(self) -> Iterator[StoredRecord]:
        keys = {self.key(step) for step in self._definition.on_failure}
        for key, stored in self._entries.items():
            if key.endswith(f"{PART}failed{self.round}") or key in keys:
                yield stored


def _output(record: WorkflowRecord) -> Any:
    return msgspec.json.decode(record.result)


def _failure(record: WorkflowRecord) -> StepState:
    assert record.error is not None
    return failed(error_text(record.error))


def error_text(error: StepError) -> str:
    """
    >>> error_text(StepError("KeyError", "'price'")), error_text(StepError("", "params.url is missing."))
    ("KeyError: 'price'", 'params.url is missing.')
    """
    return f"{error.type}: {error.message}" if error.type else error.message
