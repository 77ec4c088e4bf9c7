"""The rows of a FastAPI application without a queue: what the web server alone takes for a request."""

from __future__ import annotations

from importlib.metadata import version

from bench.contender import Benchmark, Case, Contender, Durability, Engine, Order, Outcome
from bench.yard import http


def _post(order: Order) -> Outcome:
    return http.post(order.url, order.jobs, is_bare=True)


def bare(engine: Engine) -> Contender:
    title, promise = "bare FastAPI route that answers 202", "nothing is kept"
    case = Case("http", Benchmark.HTTP, title, Durability.UNSAFE, promise, _post, share=0.2)
    return Contender("fastapi", version("fastapi"), (case,), engine)
