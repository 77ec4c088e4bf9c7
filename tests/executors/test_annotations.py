"""Types of parameters and results: what is carried, and what is refused where the handler is declared."""

from __future__ import annotations

import asyncio
import collections
import functools
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from jobyard import BlockingContext, Context, Done, Jobyard, Snooze, WorkflowContext
from jobyard.errors import BadInput, BadOption, PayloadNotJson
from jobyard.executors.python.handlers import result_decoder
from jobyard.testing import inline

WHEN = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)


class Line(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(gt=0, alias="n")


class Order(pydantic.BaseModel):
    id: UUID
    lines: list[Line]
    at: datetime
    total: Decimal


@dataclass
class Point:
    x: int
    on: date
    tags: set[str] = field(default_factory=set)


@pydantic.dataclasses.dataclass
class Checked:
    age: Annotated[int, pydantic.Field(ge=0)]


class Colour(Enum):
    RED = "red"


class Size(msgspec.Struct):
    width: int


class Pair(NamedTuple):
    left: int
    right: str


class Wanted(TypedDict):
    name: str


class Login(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr


class Weight(pydantic.BaseModel):
    kilograms: float


ORDER = Order(id=UUID(int=7), lines=[Line(sku="a", n=2)], at=WHEN, total=Decimal("1.50"))
VALUES: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (Order | None, ORDER),
    (list[Order], [ORDER]),
    (dict[str, Order], {"one": ORDER}),
    (Order | int, 3),
    (Point, Point(1, date(2026, 1, 2), {"a"})),
    (Checked, Checked(3)),
    (Colour, Colour.RED),
    (Size, Size(4)),
    (Pair, Pair(1, "x")),
    (Wanted, {"name": "x"}),
    (datetime, WHEN),
    (timedelta, timedelta(hours=2)),
    (UUID, UUID(int=1)),
    (Decimal, Decimal("0.10")),
    (bytes, b"\x00\xff"),
    (Path, Path("a/b")),
    (IPv4Address, IPv4Address("127.0.0.1")),
    (tuple[int, str], (1, "a")),
    (frozenset[int], frozenset({1})),
    (collections.deque[int], collections.deque([1])),
    (pydantic.HttpUrl, pydantic.HttpUrl("http://example.org/")),
    (Literal["a", "b"], "b"),
    (object, {"any": [1]}),
    (Annotated[int, pydantic.Field(gt=0)], 1),
]


@pytest.mark.parametrize(("hint", "value"), VALUES, ids=[str(hint) for hint, _ in VALUES])
async def test_a_value_arrives_as_it_was_passed(hint: Any, value: Any) -> None:
    yard = Jobyard("memory://")
    received: list[Any] = []

    def echo(value: Any) -> Any:
        received.append(value)
        return value

    echo.__annotations__ = {"value": hint, "return": hint}
    task = yard.job(echo)
    async with inline(yard):
        handle = await task.enqueue(value)
        result = await handle.result()
    assert (received, type(received[0]), result, type(result)) == ([value], type(value), value, type(value))


@dataclass
class Unfinished:
    part: Missing  # type: ignore[name-defined]  # noqa: F821


REFUSED: list[tuple[Any, str]] = [
    (sqlite3.Connection, "Connection has no form in JSON"),
    (Callable[[], int], "Callable has no form in JSON"),
    (dict[str, asyncio.Lock], "Lock has no form in JSON"),
    (complex, "complex has no form in JSON"),
    (str | sqlite3.Connection, "custom type"),
    (dict[tuple[int, int], str], "JSON has only text and numbers as keys. Use a list of pairs"),
    (list[dict[frozenset[int], str]], "JSON has only text and numbers as keys"),
    (Login, r"secret.*ctx\.private"),
    (Unfinished, "the type of one of its fields, Missing, cannot be found. Define or import Missing"),
]


@pytest.mark.parametrize(("hint", "reason"), REFUSED, ids=[str(hint) for hint, _ in REFUSED])
def test_what_cannot_be_carried_is_refused_where_it_is_declared(hint: Any, reason: str) -> None:
    def takes(value: Any) -> None: ...

    def returns() -> Any: ...

    takes.__annotations__ = {"value": hint}
    returns.__annotations__ = {"return": hint}
    for function, what in ((takes, "its parameter value is a "), (returns, "its result is a ")):
        with pytest.raises(BadOption, match=f"{what}.*{reason}"):
            Jobyard("memory://").job(function)


class Called:
    def __call__(self, value: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("hint", ["Missing", list["Missing"], "sys.missing", "1 +", "int | 'Missing'"])  # type: ignore[name-defined]  # noqa: F821
def test_a_type_that_cannot_be_found_is_refused_where_it_is_declared(hint: Any) -> None:
    def takes(other: int, value: Any) -> None: ...

    takes.__annotations__ = {"other": "int", "value": hint}
    for function in (takes, functools.partial(takes, other=1)):
        with pytest.raises(BadOption, match=r"type of its parameter value, .*, cannot be found\. Define or import it"):
            Jobyard("memory://").job(name="takes")(function)
    with pytest.raises(BadOption, match=r"parameter value, Missing, cannot be found"):
        Jobyard("memory://").job(name="called")(Called())


def test_names_for_the_type_checker_hide_no_other_types() -> None:
    def takes(ctx: BlockingContext, value: int) -> Missing:  # type: ignore[name-defined]  # noqa: F821
        raise NotImplementedError

    task = Jobyard("memory://").job(takes)
    task.handler.encode({"value": 1})
    with pytest.raises(BadInput, match=r"value: expected int, got str"):
        task.handler.encode({"value": "1"})


def test_steps_may_be_classes_and_functions_without_a_signature() -> None:
    @dataclass
    class Made:
        value: int

    assert result_decoder(Made)(b'{"value": 1}') == {"value": 1}
    assert result_decoder(dict)(b"{}") == {}


async def test_outcomes_are_not_part_of_the_result() -> None:
    yard = Jobyard("memory://")

    @yard.job
    async def work(ctx: Context) -> Order | Snooze | Done:
        return ORDER

    async with inline(yard):
        assert await (await work.enqueue()).result() == ORDER


async def test_a_payload_that_does_not_fit_a_model_is_not_stored() -> None:
    yard = Jobyard("memory://")

    @yard.job
    async def buy(order: Order, limit: Annotated[int, msgspec.Meta(ge=1)] = 1) -> None: ...

    @yard.job
    async def weigh(weight: Weight) -> None: ...

    async with inline(yard):
        lines = {"lines": [{"sku": "a", "n": 0}], "id": str(UUID(int=7)), "at": "2026-11-18T09:30:00Z", "total": "1"}
        with pytest.raises(BadInput, match=r"order\.lines\[0\]\.n: Input should be greater than 0"):
            await yard.enqueue("buy", {"order": lines})
        with pytest.raises(BadInput, match="limit"):
            await buy.enqueue(ORDER, 0)
        with pytest.raises(PayloadNotJson, match="nan"):
            await weigh.enqueue(Weight(kilograms=float("nan")))
        assert [job async for job in yard.jobs()] == []


async def test_steps_and_children_of_workflows() -> None:
    yard = Jobyard("memory://")

    @yard.job
    async def price(order: Order) -> Decimal:
        return order.total

    async def check(order: Order) -> Order:
        return order

    @yard.workflow
    async def sell(ctx: WorkflowContext, order: Order) -> Decimal:
        checked = await ctx.step(check, order)
        assert isinstance(checked, Order)
        return await ctx.run(price.call(checked))

    async with inline(yard):
        assert await (await sell.enqueue(ORDER)).result() == Decimal("1.50")


def test_pydantic_is_not_loaded_without_need() -> None:
    program = (
        "import sys\nfrom dataclasses import dataclass\nfrom jobyard import Jobyard\nyard = Jobyard('memory://')\n"
        "@dataclass\nclass A:\n    n: int\n"
        "@yard.job\ndef f(a: A) -> A: return a\nf.call(A(1))\nassert 'pydantic' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
