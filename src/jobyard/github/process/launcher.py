"""Runners as processes on the manager's machine. They outlive the manager, which finds them again by their folders."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from jobyard.domain.runners.cluster import ProcessCluster
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.errors import LaunchRejected, LaunchUnavailable
from jobyard.github.launcher import Instance, LaunchRequest, Phase
from jobyard.github.process.folder import Account, ProcessRecord, RunnerFolder
from jobyard.github.process.machine_check import check_machine
from jobyard.github.process.processes import (
    ProcessIdentity,
    boot_id,
    has_marker,
    is_alive,
    members,
    reap,
    terminate,
)
from jobyard.github.process.start import start_runner
from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.store import Finding

log = logging.getLogger("jobyard.github")

OBSERVE_SECONDS = 0.5
# A folder whose process has not begun after this time: the manager ended while it launched the runner.
NEVER_STARTED_SECONDS = 120.0
ABANDONED_SECONDS = 600.0
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class ProcessLauncher:
    def __init__(self, name: str, cluster: ProcessCluster, *, instance: str, clock: Clock | None = None) -> None:
        self.name = name
        self._cluster = cluster
        self._manager = instance
        self._clock = clock or SystemClock()
        self._source, self._folder = Path(cluster.runner_folder), Path(cluster.work_folder)
        self._on_change: Callable[[Instance], None] = lambda _: None
        self._records: dict[str, ProcessRecord] = {}
        self._instances: dict[str, Instance] | None = None
        self._launches: dict[str, asyncio.Task[None]] = {}
        self._removals: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._observer: asyncio.Task[None] | None = None

    async def start(self, on_change: Callable[[Instance], None]) -> None:
        self._on_change = on_change
        self._observe()
        self._observer = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        tasks = [task for task, _ in self._removals.values()]
        tasks += [self._observer] if self._observer is not None else []
        self._observer, self._instances = None, None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def instances(self) -> Sequence[Instance] | None:
        return None if self._observer is None or self._instances is None else [*self._instances.values()]

    def namespace_of(self, profile: RunnerProfile) -> str:
        return ""

    # Observe

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(OBSERVE_SECONDS)
            self._observe()

    def _observe(self) -> None:
        """Bring the view up to date with the folders and their processes."""
        try:
            names = {entry.name for entry in self._folder.iterdir()} if self._folder.exists() else set()
            found = {name: self._look(name) for name in sorted(names | self._launches.keys())}
        except OSError as error:
            if self._instances is not None:
                log.warning("cannot read %s: %s", self._folder, error)
            self._instances = None
            return
        before, self._instances = self._instances or {}, {name: each for name, each in found.items() if each}
        for name in self._records.keys() - self._instances.keys():
            del self._records[name]
        for name, instance in self._instances.items():
            if before.get(name) != instance:
                self._notify(instance)
            if self._records[name].is_removed and name not in self._removals:
                self._begin_removal(name)
        for name in before.keys() - self._instances.keys():
            self._notify(msgspec.structs.replace(before[name], is_terminating=True))

    def _look(self, name: str) -> Instance | None:
        folder = RunnerFolder(self._folder / name)
        record = self._records.get(name) if folder.path.is_dir() else None
        record = record or folder.load()
        if record is None or record.manager != self._manager or record.name != name:
            return None
        if record.process is None and name not in self._launches:
            self._adopt(folder, record)
        self._records[name] = record
        return self._instance(folder, record)

    def _adopt(self, folder: RunnerFolder, record: ProcessRecord) -> None:
        """Find the process of a manager that was killed after it had started it."""
        process = folder.recorded_process()
        # The file is the runner's own: only a process that carries its marker is believed.
        if process is not None and (has_marker(process.pid, record.uid) or folder.exit_code() is not None):
            record.process, record.started_at = process, record.created_at
            folder.save(record)

    def _instance(self, folder: RunnerFolder, record: ProcessRecord) -> Instance:
        instance = Instance(
            name=record.name,
            uid=record.uid,
            org_name=record.org_name,
            repository=record.repository,
            profile=record.profile,
            ticket_id=record.ticket_id,
            runner_id=record.runner_id,
            requested_job_id=record.requested_job_id,
            created_at=record.created_at,
            started_at=record.started_at,
            is_terminating=record.is_removed,
        )
        known, process = (self._instances or {}).get(record.name), record.process
        if known is not None and known.uid == record.uid and known.phase is Phase.ENDED:
            return msgspec.structs.replace(known, is_terminating=record.is_removed)
        if process is None:
            age_seconds = (self._clock.now() - record.created_at) / 1000
            if record.name in self._launches or age_seconds < NEVER_STARTED_SECONDS:
                return instance
            reason = "the manager ended before it started the runner"
            return msgspec.structs.replace(instance, phase=Phase.ENDED, reason=reason)
        if is_alive(process):
            return msgspec.structs.replace(instance, phase=Phase.RUNNING)
        reap(process.pid)
        return self._ended(folder, record, process, instance)

    def _ended(
        self, folder: RunnerFolder, record: ProcessRecord, process: ProcessIdentity, instance: Instance
    ) -> Instance:
        ended = folder.exit_code()
        if ended is not None:
            code, at = ended
            reason = f"exit code {code}" if code else ""
            return msgspec.structs.replace(instance, phase=Phase.ENDED, exit_code=code, reason=reason, finished_at=at)
        if members(process, record.uid):  # only the shell around it was killed
            return msgspec.structs.replace(instance, phase=Phase.RUNNING)
        reason = "it was killed" if process.boot == boot_id() else "the machine was restarted"
        return msgspec.structs.replace(instance, phase=Phase.ENDED, reason=reason, finished_at=self._clock.now())

    def _notify(self, instance: Instance) -> None:
        try:
            self._on_change(instance)
        except Exception:
            log.exception("cannot report the change of runner %s", instance.name)

    # Launch

    async def launch(self, request: LaunchRequest) -> Instance:
        if request.jit is None:
            raise LaunchRejected("Warm runners are not possible with backend process. Set warm: 0 in the profile.")
        if NAME.fullmatch(request.name) is None:
            raise LaunchRejected(f"{request.name!r} is not a valid name of a runner.")
        launching = self._launches.get(request.name)
        if launching is None:
            work = self._launch(self._record(request), self._account(), request.jit.encoded)
            launching = self._launches[request.name] = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.shield(launching)  # a caller that is cancelled must not leave half a runner
        except FileExistsError:
            pass
        except FileNotFoundError as error:
            raise LaunchRejected(f"Cannot copy the runner: {error}.") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise LaunchUnavailable(f"Cannot start the runner: {error}.") from error
        found = await self.get(request.name)
        if found is None:
            raise LaunchRejected(f"{self._folder / request.name} exists and does not belong to this manager.")
        return found

    async def _launch(self, record: ProcessRecord, account: Account, jit: str) -> None:
        try:
            folder = RunnerFolder.create(self._folder, record)
            self._records[record.name] = record
            self._observe()
            try:
                await asyncio.to_thread(folder.fill, self._source, account)
                await asyncio.to_thread(self._start_process, folder, record, account, jit)
            except OSError:
                if record.process is None:
                    await asyncio.to_thread(folder.remove)
                raise
        finally:
            del self._launches[record.name]
            self._observe()

    def _account(self) -> Account:
        try:
            account = Account.named(self._cluster.user)
        except KeyError as error:
            raise LaunchRejected(f"The user {self._cluster.user} does not exist.") from error
        if account.is_other and os.getuid() != 0:
            raise LaunchRejected(f"Only a manager that runs as root can start runners as {account.name}.")
        return account

    def _record(self, request: LaunchRequest) -> ProcessRecord:
        return ProcessRecord(
            manager=self._manager,
            name=request.name,
            uid=uuid.uuid4().hex,
            org_name=request.org_name,
            repository=request.repository,
            profile=request.profile.name,
            ticket_id=request.ticket_id,
            runner_id=request.jit.runner_id if request.jit else None,
            requested_job_id=request.requested_job_id,
            annotations=dict(request.annotations),
            created_at=self._clock.now(),
        )

    def _start_process(self, folder: RunnerFolder, record: ProcessRecord, account: Account, jit: str) -> None:
        record.process = start_runner(folder, record.uid, account, jit)
        record.started_at = self._clock.now()
        folder.save(record)

    # One instance

    async def get(self, name: str, namespace: str = "") -> Instance | None:
        try:
            return self._look(name) if NAME.fullmatch(name) else None
        except OSError as error:
            raise LaunchUnavailable(f"Cannot read {self._folder / name}: {error}.") from error

    async def remove(self, instance: Instance, *, force: bool = False) -> None:
        found = await self.get(instance.name)
        record = self._records.get(instance.name)
        if found is None or record is None or (instance.uid and found.uid != instance.uid):
            return
        if not record.is_removed:
            record.is_removed = True
            try:
                RunnerFolder(self._folder / record.name).save(record)
            except OSError as error:
                raise LaunchUnavailable(f"Cannot write to {self._folder / record.name}: {error}.") from error
        if record.name not in self._removals:
            self._begin_removal(record.name)
        if force:
            self._removals[record.name][1].set()

    def _begin_removal(self, name: str) -> None:
        force = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._remove(self._records[name], force))
        self._removals[name] = (task, force)

        def done(_: asyncio.Task[None]) -> None:
            self._removals.pop(name, None)

        task.add_done_callback(done)

    async def _remove(self, record: ProcessRecord, force: asyncio.Event) -> None:
        folder = RunnerFolder(self._folder / record.name)
        if record.name in self._launches:
            await asyncio.wait([self._launches[record.name]])
        try:
            if record.process is not None:
                await terminate(record.process, record.uid, self._cluster.stop_grace, force)
            await asyncio.to_thread(folder.remove)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("cannot remove %s: %s", folder.path, error)
            await asyncio.sleep(10 * OBSERVE_SECONDS)  # then the observer begins again
        if self._observer is not None:
            self._observe()

    async def annotate(self, instance: Instance, annotations: dict[str, str]) -> bool:
        record = self._records.get(instance.name)
        if record is None or record.uid != instance.uid:
            return False
        record.annotations |= annotations
        try:
            RunnerFolder(self._folder / record.name).save(record)
        except OSError:
            return False
        return True

    async def sweep(self) -> int:
        """Folders of launches that were cut off before they had a record."""
        count = 0
        with contextlib.suppress(OSError):
            for path in self._folder.glob(".*.new"):
                if self._clock.now() / 1000 - path.stat().st_mtime > ABANDONED_SECONDS:
                    await asyncio.to_thread(RunnerFolder(path).remove)
                    count += 1
        return count

    async def check(self, profiles: Sequence[RunnerProfile]) -> list[Finding]:
        return check_machine(self.name, self._cluster, [each for each in profiles if each.cluster == self.name])
