"""Client methods for program execution: run, wait, follow the output."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from jobyard.api.schemas.execute import ExecuteBatchRequest, ExecuteRequest, ExecutionView, LanguageList
from jobyard.client.address import path
from jobyard.client.events import SILENCE_SECONDS
from jobyard.client.jobs import new_key
from jobyard.client.transport import Transport, as_query, decode_event


class ProgramEndpoints:
    _transport: Transport

    async def execute(self, program: ExecuteRequest | ExecuteBatchRequest, wait: float = 0.0) -> ExecutionView:
        """Run a program; returns when it ends, after `wait` seconds (at most 60) at the latest."""
        at = "/execute/batch" if isinstance(program, ExecuteBatchRequest) else "/execute"
        query = as_query({"wait": f"{wait:.3f}"}) if wait else ()
        return await self._transport.call(
            "POST", at, ExecutionView, query=query, body=program, key=new_key(), wait_seconds=wait
        )

    async def execution(self, job_id: str, wait: float = 0.0) -> ExecutionView:
        """The state or the result of an execution."""
        query = as_query({"wait": f"{wait:.3f}"}) if wait else ()
        return await self._transport.call("GET", path("jobs", job_id), ExecutionView, query=query, wait_seconds=wait)

    async def output(self, job_id: str, *, cancel_on_leave: bool = False) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """The output as it is written: ("stdout", {"text": …}), "stderr", "restart"; the last event is "finished"."""
        query = as_query({"cancel_on_leave": str(cancel_on_leave).lower()})
        async with self._transport.stream(path("jobs", job_id, "output"), query, "", SILENCE_SECONDS) as source:
            async for message in source:
                if message.data:
                    yield message.event, decode_event(message.data, dict[str, Any])

    async def languages(self) -> LanguageList:
        """The languages that are available now."""
        return await self._transport.call("GET", "/languages", LanguageList)
