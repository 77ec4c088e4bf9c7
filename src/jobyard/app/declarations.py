"""What a program declares: its handlers, tasks, queues and schedules. Internal: jobyard's own commands read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobyard.config.sections import EVERY_QUEUE
from jobyard.domain.job import QueueSettings
from jobyard.domain.job_options import queue_settings, with_options
from jobyard.domain.options import check_name
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadOption
from jobyard.executors.python.handlers import HandlerRegistry
from jobyard.executors.workflow.builtin import builtin_handlers
from jobyard.operations.job_factory import JobFactory

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard
    from jobyard.app.task import Task


class Declarations:
    """The declarations of one yard, and the queue settings of its configuration."""

    def __init__(self, max_payload_bytes: int) -> None:
        self.tasks: dict[str, Task[..., ..., Any]] = {}
        self.handlers = HandlerRegistry(builtin_handlers(self.tasks))
        self.schedules: dict[str, Schedule] = {}
        self.job_factory = JobFactory(max_payload_bytes, self.tasks)
        self._queues: dict[str, Mapping[str, Any]] = {}
        self._suggested: dict[str, Mapping[str, Any]] = {}
        self._configured: Mapping[str, Mapping[str, Any]] = {}

    def add_task(self, task: Task[..., ..., Any]) -> None:
        self.handlers.add(task.handler)
        self.tasks[task.handler.name] = task

    def add_schedule(self, schedule: Schedule) -> None:
        if schedule.name in self.schedules:
            raise BadOption(
                f"Cannot declare two schedules named {schedule.name}. Give one of them another name: "
                "@yard.cron(…, name=…).",
                option="name",
            )
        self.schedules[schedule.name] = schedule

    def add_queue(self, name: str, settings: Mapping[str, Any]) -> None:
        queue_settings(settings)
        self._queues[check_name("queue", name)] = settings

    def suggest_queue(self, name: str, settings: Mapping[str, Any]) -> None:
        """Settings that apply where neither the program nor its configuration has any."""
        self._suggested[name] = settings

    def configure_queues(self, queues: Mapping[str, Mapping[str, Any]]) -> None:
        """The queues of the configuration, which override the program; `*` applies where neither has a setting."""
        self._configured = queues
        for task in self.tasks.values():
            if not task.declares_max_attempts:
                every = queues.get(EVERY_QUEUE, {}).get("max_attempts", task.defaults.max_attempts)
                most = queues.get(task.defaults.queue, {}).get("max_attempts", every)
                task.defaults = with_options(task.defaults, {"max_attempts": most})

    def has_queue(self, name: str) -> bool:
        """Whether the program or its configuration names this queue."""
        return name in self.queue_settings() or any(task.defaults.queue == name for task in self.tasks.values())

    def queue_settings(self) -> dict[str, QueueSettings]:
        """The settings of every queue that the program or its configuration names."""
        every = self._configured.get(EVERY_QUEUE, {})
        names = dict.fromkeys([*self._suggested, *self._queues, *self._configured])
        if every.keys() - {"max_attempts"}:
            names |= dict.fromkeys(task.defaults.queue for task in self.tasks.values())
        settings: dict[str, QueueSettings] = {}
        for name in names:
            if name != EVERY_QUEUE:
                declared = {**self._suggested.get(name, {}), **every, **self._queues.get(name, {})}
                given = {**declared, **self._configured.get(name, {})}
                given.pop("max_attempts", None)
                settings[name] = queue_settings(given)
        return settings


def declarations_of(yard: Jobyard) -> Declarations:
    return yard._declarations


def job_factory(yard: Jobyard, *, has_app: bool) -> JobFactory:
    """The factory of the app, or one that accepts any kind."""
    return declarations_of(yard).job_factory if has_app else JobFactory(yard.max_payload_bytes)
