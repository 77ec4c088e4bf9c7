"""A shop with FastAPI: an order and its job in one transaction, and progress in the page."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal

from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from jobyard import Context, Job, Jobyard
from jobyard.errors import JobNotFound, NotPossible, ResultNotReady

engine = create_engine("sqlite:///shop.db")
yard = Jobyard("sqlite:///shop.db")  # the same database, so that one transaction holds both
wait = yard.blocking()  # for plain functions


class OrderForm(BaseModel):
    product: str
    count: int = Field(gt=0)
    price: Decimal


class Receipt(BaseModel):
    order: int
    total: Decimal


class Base(DeclarativeBase): ...


class OrderRow(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    product: Mapped[str]
    count: Mapped[int]


@yard.job(queue="orders", max_attempts=3, timeout=60)
async def pack(ctx: Context, order: int, form: OrderForm) -> Receipt:
    for number in range(form.count):
        await asyncio.sleep(0.1)
        await ctx.progress(100 * (number + 1) / form.count, f"packed {number + 1} of {form.count}")
    return Receipt(order=order, total=form.count * form.price)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    Base.metadata.create_all(engine)
    async with yard:  # the worker is a process of its own: jobyard --app shop:yard worker
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
def take_order(form: OrderForm) -> dict[str, object]:
    with Session(engine) as session, session.begin():
        row = OrderRow(product=form.product, count=form.count)
        session.add(row)
        session.flush()
        job = wait(pack.options(transaction=session).enqueue(row.id, form))
        if form.product == "unicorn":  # rolls back both the row and the job
            raise HTTPException(409, "sold out")
        return {"order": row.id, "job": job.id}


@app.get("/jobs/{job_id}")
async def read_job(job_id: str) -> Job:
    return await yard.get(job_id)


@app.post("/jobs/{job_id}/cancel")
async def cancel_job(job_id: str) -> Job:
    return await yard.cancel(job_id, "the customer changed their mind")


@app.get("/jobs/{job_id}/events")
async def follow_job(job_id: str) -> StreamingResponse:
    await yard.get(job_id)  # 404 before the stream begins
    return StreamingResponse(events(job_id), media_type="text/event-stream")


async def events(job_id: str) -> AsyncIterator[str]:
    last = ""
    while True:
        job = await yard.get(job_id)
        percent, message = (job.progress.percent, job.progress.message) if job.progress else (0, "waiting")
        data = json.dumps({"state": job.state, "percent": percent, "message": message, "result": job.result})
        if data != last:
            yield f"data: {data}\n\n"
            last = data
        if job.state.is_final:
            return
        with suppress(ResultNotReady):
            await yard.end(job_id, timeout=0.2)


@app.exception_handler(JobNotFound)
async def not_found(_: object, error: JobNotFound) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404)


@app.exception_handler(NotPossible)
async def not_possible(_: object, error: NotPossible) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)  # such as: cancel a job that has ended


PAGE = """<!doctype html>
<title>Shop</title>
<button>Order three cups</button> <progress max="100" value="0"></progress> <output></output>
<script>
  document.querySelector("button").onclick = async () => {
    const order = {product: "cup", count: 3, price: "2.50"}
    const headers = {"content-type": "application/json"}
    const response = await fetch("/orders", {method: "POST", headers, body: JSON.stringify(order)})
    const source = new EventSource(`/jobs/${(await response.json()).job}/events`)
    source.onmessage = message => {
      const job = JSON.parse(message.data)
      document.querySelector("progress").value = job.percent
      document.querySelector("output").textContent =
        job.state == "COMPLETED" ? `done: ${job.result.total}` : job.message
      if (!["PENDING", "RUNNING"].includes(job.state)) source.close()
    }
  }
</script>
"""


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    return PAGE
