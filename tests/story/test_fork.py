"""A fork of a process that has opened a yard, as gunicorn --preload and multiprocessing make."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.story.engines import empty_store
from tests.support import python

PROGRAM = """
import asyncio, os, signal, sys

from jobyard import Jobyard
from jobyard.errors import NotPossible

yard = Jobyard(sys.argv[1])


@yard.job
def work(number: int) -> None: ...


def in_child(run) -> None:
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs is killed
        try:
            run()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def refused(run) -> None:
    try:
        run()
    except NotPossible as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError("not refused")


with yard.blocking() as wait:
    wait(work.enqueue(1))

    def use() -> None:
        refused(lambda: wait(work.enqueue(13)))
        refused(lambda: asyncio.run(yard.queues()))
        with yard.blocking() as own:
            own(work.enqueue(2))

    in_child(use)
    wait(work.enqueue(3))
    print(wait(yard.queues())[0].waiting)


async def main() -> None:
    async with yard:
        await work.enqueue(4)

        async def use() -> None:
            try:
                await work.enqueue(13)
            except NotPossible:
                pass
            async with yard:
                await work.enqueue(5)

        in_child(lambda: asyncio.run(use()))
        await work.enqueue(6)
        print((await yard.queues())[0].waiting)


asyncio.run(main())
"""


@pytest.mark.parametrize("engine", ["sqlite", "redis", "postgres"])
def test_a_forked_child_is_refused_the_parents_store_and_opens_its_own(engine: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with empty_store(engine, tmp_path) as url:
        answer = python(str(program), url, cwd=tmp_path)
    assert (answer.stdout.split(), answer.stderr, answer.returncode) == (["3", "6"], "", 0)


HANDLERS = """
import asyncio, os, signal, sys

from jobyard import Jobyard

yard = Jobyard(sys.argv[1])


def fork() -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs is killed
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@yard.job
async def returns() -> int:
    child = fork()
    return await asyncio.to_thread(exit_code, child) if child else 0


@yard.job
async def raises() -> int:
    child = fork()
    if child == 0:
        raise ValueError
    return await asyncio.to_thread(exit_code, child)


@yard.job
async def waits() -> int:
    parent = os.getpid()
    # Due in the same turn of the event loop, as what reads the sockets of the store may be.
    asyncio.get_running_loop().call_soon(lambda: os._exit(1) if os.getpid() != parent else None)
    child = fork()
    if child == 0:
        await asyncio.sleep(0)
        await asyncio.Event().wait()
    return await asyncio.to_thread(exit_code, child)


@yard.job
def blocks() -> int:
    child = fork()
    return exit_code(child) if child else 0


async def main() -> None:
    async with yard, yard.worker(concurrency=4):
        print(*[await (await job.enqueue()).result(timeout=60) for job in (returns, raises, waits, blocks)])


asyncio.run(main())
"""


@pytest.mark.parametrize("engine", ["sqlite", "redis", "postgres"])
def test_a_child_that_a_handler_forked_does_not_go_on_as_a_worker(engine: str, tmp_path: Path) -> None:
    """It would read the responses of the parent's store, and others would lose their leases."""
    program = tmp_path / "program.py"
    program.write_text(HANDLERS)
    with empty_store(engine, tmp_path) as url:
        done = python(str(program), url, cwd=tmp_path)
    assert done.stdout.split() == ["70"] * 4, done.stderr
    assert done.stderr.count("did not end the child process") == 4
