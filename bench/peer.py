"""A peer's rows: its script, in its environment, on the database of this run."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.contender import Benchmark, Case, Contender, Durability, Engine, Order, Outcome
from bench.environments import environments
from bench.servers import settle

ROOT = Path(__file__).resolve().parent.parent
LONGEST_SCRIPT_SECONDS = 300
SAMPLES = 200
DURABILITY = {
    Engine.REDIS: Durability.SECOND_LOST,
    Engine.POSTGRES: Durability.POWER_SAFE,
    Engine.SQLITE: Durability.POWER_SAFE,
}


@dataclass(frozen=True, slots=True)
class Peer:
    """`share` is that of --jobs which it drains in about two seconds."""

    name: str
    engine: Engine
    guarantee: str
    share: float
    environment: str = ""  # its name, unless another is given
    script: str = ""  # that of its environment, unless another is given

    def drain(self, name: str = "drain", about: str = "", guarantee: str = "", **settings: int) -> Case:
        case = self._case(name, Benchmark.DRAIN, about, partial(_drain, self, settings), self.share)
        return replace(case, guarantee=guarantee or self.guarantee)

    def insert(self, about: str, share: float, **settings: int) -> Case:
        return self._case("insert", Benchmark.INSERT, about, partial(_plain, self, "insert", settings), share)

    def enqueue(self, share: float, callers: int = 1, **settings: int) -> Case:
        about = "one caller" if callers == 1 else f"{callers} callers at once"
        measure = partial(_plain, self, "enqueue", {"callers": callers, **settings})
        return self._case(f"enqueue-{callers}", Benchmark.ENQUEUE, about, measure, share)

    def latency(self, **settings: int) -> Case:
        measure = partial(_plain, self, "latency", settings)
        return self._case("latency", Benchmark.LATENCY, "inside one process", measure, 1, SAMPLES)

    def steps(self, name: str, about: str, share: float, **settings: int) -> Case:
        return self._case(name, Benchmark.STEPS, about, partial(_plain, self, "steps", settings), share)

    def children(self, name: str, about: str, share: float, **settings: int) -> Case:
        return self._case(name, Benchmark.CHILDREN, about, partial(_plain, self, name, settings), share)

    def contender(self, *cases: Case) -> Contender:
        return Contender(self.name, environments()[self.at].version, cases, self.engine, self.at)

    @property
    def at(self) -> str:
        return self.environment or self.name

    def _case(
        self,
        name: str,
        benchmark: Benchmark,
        about: str,
        measure: partial[Outcome],
        share: float,
        at_most: int | None = None,
    ) -> Case:
        return Case(
            name=name,
            benchmark=benchmark,
            title=f"{self.name}, {about}" if about else self.name,
            durability=DURABILITY[self.engine],
            guarantee=self.guarantee,
            measure=measure,
            share=share,
            at_most=at_most,
        )


def _drain(peer: Peer, settings: dict[str, int], order: Order) -> Outcome:
    _run(peer, "fill", settings, order)
    settle(order.url)
    return Outcome(_run(peer, "drain", settings, order))


def _plain(peer: Peer, action: str, settings: dict[str, int], order: Order) -> Outcome:
    return Outcome(_run(peer, action, settings, order))


def _run(peer: Peer, action: str, settings: dict[str, int], order: Order) -> dict[str, float]:
    environment = environments()[peer.at]
    url = order.url or f"sqlite:///{order.folder / 'peer.db'}"
    text = json.dumps({"action": action, "url": url, "jobs": order.jobs, "settings": settings})
    script = peer.script or peer.at.replace("-", "_")
    words = [str(environment.interpreter)]
    words += [str(ROOT / "bench" / "peers" / f"{script}.mjs")] if environment.npm else ["-m", f"bench.peers.{script}"]
    done = subprocess.run(
        [*words, text],
        cwd=environment.folder if environment.npm else ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST_SCRIPT_SECONDS,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"{script}, {action}: {said[-1]}")
    figures: dict[str, float] = json.loads(lines[-1])
    return figures
