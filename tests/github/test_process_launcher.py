"""Runners as real processes: their lives, their ends, and a manager that is killed in between."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.github.process_machine import AS_ROOT, LINUX, STUBBORN, Machine, is_running, machine, request, short_waits
from tests.support import PATIENCE_SECONDS, eventually

from jobyard.domain.runners.cluster import Cluster, KubernetesCluster
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.errors import ConfigurationError
from jobyard.github.errors import LaunchRejected, LaunchUnavailable
from jobyard.github.kubernetes.launcher import KubernetesLauncher
from jobyard.github.launcher import Phase
from jobyard.github.launchers import create_launcher, create_launchers
from jobyard.github.process.launcher import ProcessLauncher
from jobyard.ports.store import Level

__all__ = ["machine", "short_waits"]


async def test_a_runner_from_launch_to_removal(machine: Machine) -> None:
    machine.acts(
        'echo "config $ACTIONS_RUNNER_INPUT_JITCONFIG"; echo work > job; while [ ! -e stop ]; do sleep 0.02; done'
    )
    launched = await machine.launch()
    assert (launched.phase, launched.org_name, launched.runner_id, launched.ticket_id) == (
        Phase.RUNNING,
        "acme",
        77,
        "t1",
    )
    assert machine.launcher.instances() == [launched]
    assert "config c2VjcmV0" in await machine.log("r1", "config")
    runner = machine.work / "r1" / "runner"
    assert (runner / "bin" / "link").read_text() == "original"
    assert not (runner / ".credentials").exists()
    assert not (runner / "_work").exists()
    (runner / "stop").touch()
    ended = await machine.in_phase("r1", Phase.ENDED)
    assert (ended.exit_code, ended.reason, ended.holds_slot) == (0, "", False)
    assert ended.finished_at
    assert abs(ended.finished_at - time.time() * 1000) < 60_000
    await machine.launcher.remove(ended)
    await machine.gone("r1")
    assert list(dict.fromkeys(each.phase for each in machine.changes)) == [Phase.PENDING, Phase.RUNNING, Phase.ENDED]
    assert not (machine.source / "job").exists()


async def test_the_configuration_is_not_in_arguments_or_files(machine: Machine) -> None:
    await machine.launch()
    pid = machine.pid("r1")
    assert b"c2VjcmV0" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert b"c2VjcmV0" in Path(f"/proc/{pid}/environ").read_bytes()
    written = [path for path in (machine.work / "r1").rglob("*") if path.is_file() and "c2VjcmV0" in path.read_text()]
    assert written == []


async def test_the_environment_of_the_manager_is_not_passed_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBYARD_RUNNERS__GITHUB_TOKEN", "very secret")
    monkeypatch.setenv("https_proxy", "http://proxy.example.com")
    machine.acts("env; echo home=$HOME; echo done")
    await machine.launch()
    output = await machine.log("r1", "done")
    assert "very secret" not in output
    assert "https_proxy=http://proxy.example.com" in output
    assert f"home={machine.work}/r1/home" in output


async def test_an_exit_code(machine: Machine) -> None:
    machine.acts("exit 7")
    await machine.launch()
    ended = await machine.in_phase("r1", Phase.ENDED)
    assert (ended.exit_code, ended.reason) == (7, "exit code 7")
    assert (machine.work / "r1").exists()


async def test_a_runner_that_is_killed(machine: Machine) -> None:
    machine.acts("kill -9 $PPID $$")
    await machine.launch()
    ended = await machine.in_phase("r1", Phase.ENDED)
    assert (ended.exit_code, ended.reason) == (None, "it was killed")


async def test_a_runner_whose_shell_is_killed_still_runs(machine: Machine) -> None:
    machine.acts('kill -9 $PPID; echo "killed it"; while [ ! -e stop ]; do sleep 0.02; done')
    await machine.launch()
    await machine.log("r1", "killed it")
    await eventually(lambda: not is_running(machine.pid("r1")))
    await asyncio.sleep(0.1)
    running = machine.named("r1")
    assert running is not None
    assert running.phase is Phase.RUNNING
    (machine.work / "r1" / "runner" / "stop").touch()
    await machine.in_phase("r1", Phase.ENDED)


async def test_removal_ends_all_processes_of_the_runner(machine: Machine) -> None:
    machine.acts(
        """
        sleep 1000 & echo $! > child
        setsid sleep 1000 & echo $! > session
        (setsid sh -c 'echo $$ > daemon; exec sleep 1000' &)
        wait
        """
    )
    launched = await machine.launch()
    runner = machine.work / "r1" / "runner"
    files = [runner / name for name in ("child", "session", "daemon")]
    await eventually(lambda: all(path.exists() and path.read_text().strip() for path in files))
    pids = [int(path.read_text()) for path in files]
    assert all(is_running(pid) for pid in pids)
    await machine.launcher.remove(launched)
    await machine.gone("r1")
    assert not any(is_running(pid) for pid in pids)
    assert machine.changes[-1].is_terminating


async def test_removal_of_a_runner_that_left_processes_behind(machine: Machine) -> None:
    machine.acts("(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &) ; until [ -s daemon ]; do sleep 0.02; done")
    await machine.launch()
    ended = await machine.in_phase("r1", Phase.ENDED)
    pid = int((machine.work / "r1/runner/daemon").read_text())
    assert is_running(pid)
    await machine.launcher.remove(ended)
    await machine.gone("r1")
    assert not is_running(pid)


async def test_a_runner_that_ignores_the_signal_is_killed_after_the_grace(tmp_path: Path, machine: Machine) -> None:
    machine.launcher = machine.make(stop_grace=0.5)
    await machine.launcher.start(machine.changes.append)
    machine.acts(STUBBORN)
    launched = await machine.launch()
    await machine.log("r1", "ready")
    began = time.monotonic()
    await machine.launcher.remove(launched)
    terminating = await eventually(lambda: (found := machine.named("r1")) and found.is_terminating and found)
    assert terminating.phase is Phase.RUNNING
    assert terminating.holds_slot
    await machine.gone("r1")
    assert time.monotonic() - began >= 0.5


async def test_removal_by_force_does_not_wait(machine: Machine) -> None:
    machine.launcher = machine.make(stop_grace=10 * PATIENCE_SECONDS)
    await machine.launcher.start(machine.changes.append)
    machine.acts(STUBBORN)
    launched = await machine.launch()
    await machine.log("r1", "ready")
    await machine.launcher.remove(launched)
    await machine.log("r1", "refused")
    await machine.launcher.remove(launched, force=True)
    await machine.gone("r1")
    await machine.launcher.remove(launched)


async def test_launching_twice_is_the_same_runner(machine: Machine) -> None:
    first, second = await asyncio.gather(machine.launch(), machine.launch())
    third = await machine.launch()
    assert first.uid == second.uid == third.uid
    assert len(machine.launcher.instances() or ()) == 1


async def test_removal_leaves_another_runner_of_the_same_name(machine: Machine) -> None:
    first = await machine.launch()
    await machine.launcher.remove(first, force=True)
    await machine.gone("r1")
    second = await machine.launch()
    await machine.launcher.remove(first)
    assert await machine.launcher.get("r1") == second


async def test_two_managers_in_one_folder(machine: Machine) -> None:
    other = machine.make("green")
    await other.start(lambda _: None)
    launched = await other.launch(request("r1"))
    with pytest.raises(LaunchRejected, match="does not belong"):
        await machine.launch()
    assert machine.launcher.instances() == []
    await other.remove(launched, force=True)
    await eventually(lambda: other.instances() == [])


@pytest.mark.parametrize("name", ["../r1", "", "R1", ".r1", "a" * 64])
async def test_a_name_that_is_not_a_name(machine: Machine, name: str) -> None:
    with pytest.raises(LaunchRejected, match="not a valid name"):
        await machine.launch(name)
    assert await machine.launcher.get(name) is None


async def test_what_cannot_be_launched(machine: Machine) -> None:
    with pytest.raises(LaunchRejected, match="Warm"):
        await machine.launcher.launch(request("r1", jit=None))
    with pytest.raises(LaunchRejected, match="user nobody-here does not exist"):
        await machine.make(user="nobody-here").launch(request("r1"))
    with pytest.raises(LaunchRejected, match="Cannot copy the runner"):
        await machine.make(runner_folder=str(machine.work / "none")).launch(request("r1"))
    machine.work.mkdir(exist_ok=True)
    (machine.work / "file").touch()
    with pytest.raises(LaunchUnavailable):
        await machine.make(work_folder=str(machine.work / "file")).launch(request("r1"))
    await eventually(lambda: machine.launcher.instances() == [])
    assert [each.name for each in machine.work.iterdir()] == ["file"]


async def test_a_cancelled_launch_leaves_a_whole_runner(machine: Machine) -> None:
    launching = asyncio.create_task(machine.launch())
    await eventually((machine.work / "r1").exists)
    launching.cancel()
    await machine.in_phase("r1", Phase.RUNNING)


@AS_ROOT
async def test_another_user(machine: Machine, tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents[:2]]:
        folder.chmod(0o755)
    machine.launcher = machine.make(user="nobody")
    await machine.launcher.start(machine.changes.append)
    machine.acts(
        """
        echo mine > file && echo "can write here"
        echo mine 2>/dev/null > bin/tool || echo "cannot change shared files"
        mv bin bin.old && echo "can replace folders"
        echo x 2>/dev/null > ../state.json || echo "cannot change the record"
        mkfifo ../control/exit.new; mv ../control/exit.new ../control/exit
        echo done; exec sleep 1000
        """
    )
    launched = await machine.launch()
    output = await machine.log("r1", "done")
    for line in (
        "started as nobody",
        "can write here",
        "cannot change shared files",
        "can replace folders",
        "cannot change the record",
    ):
        assert line in output
    assert (machine.source / "bin" / "tool").read_text() == "original"
    assert (machine.source / "bin" / "tool").stat().st_nlink > 1
    os.kill(machine.pid("r1"), signal.SIGKILL)
    await eventually(lambda: not is_running(machine.pid("r1")))
    await machine.launcher.remove(launched)
    await machine.gone("r1")
    assert (machine.source / "bin" / "tool").stat().st_nlink == 1


async def test_abandoned_folders_are_swept(machine: Machine) -> None:
    machine.work.mkdir()
    for name, age_seconds in ((".old.1.new", 1000), (".young.1.new", 10)):
        (machine.work / name).mkdir()
        os.utime(machine.work / name, (time.time() - age_seconds,) * 2)
    await machine.launch()
    assert await machine.launcher.sweep() == 1
    assert {each.name for each in machine.work.iterdir()} == {".young.1.new", "r1"}


async def test_annotations_survive(machine: Machine) -> None:
    launched = await machine.launch()
    await machine.launcher.annotate(launched, {"executed-job": "99"})
    assert '"executed-job":"99"' in (machine.work / "r1" / "state.json").read_text()


# Checks


async def test_checks(machine: Machine) -> None:
    def messages(findings: Any) -> list[str]:
        return [each.message for each in findings if each.level is Level.FAIL]

    user = "nobody" if os.getuid() == 0 else None
    (found,) = await machine.make(user=user).check([LINUX])
    assert found.level is Level.OK
    assert messages(await machine.make(user="nobody-here").check([])) == ["the user nobody-here does not exist"]
    (machine.source / "run.sh").chmod(0o644)
    assert messages(await machine.make(user=user).check([])) == [f"{machine.source}/run.sh is not executable"]
    (machine.source / "run.sh").unlink()
    assert messages(await machine.make(user=user).check([])) == [f"{machine.source}/run.sh does not exist"]
    warm = RunnerProfile(name="warm", labels=("w",), cluster="here", warm=2)
    elsewhere = RunnerProfile(name="w2", labels=("w",), cluster="default", warm=2)
    assert "warm is 2" in messages(await machine.make(user=user).check([warm, elsewhere]))[-1]
    (machine.source / "file").touch()
    failed = messages(await machine.make(user=user, work_folder=str(machine.source / "file" / "x")).check([]))
    assert "cannot write to" in failed[-1]


# The choice of the launcher


def test_a_launcher_for_each_cluster(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    clusters: dict[str, Cluster] = {"here": made.cluster(), "default": KubernetesCluster(kubeconfig=str(kubeconfig))}
    launchers = create_launchers(clusters, [LINUX], "blue")
    assert isinstance(launchers["here"], ProcessLauncher)
    assert isinstance(launchers["default"], KubernetesLauncher)
    assert {name: each.name for name, each in launchers.items()} == {"here": "here", "default": "default"}
    with pytest.raises(ConfigurationError, match="does not exist"):
        create_launcher("far", KubernetesCluster(kubeconfig=str(tmp_path / "none")), [], "blue")
