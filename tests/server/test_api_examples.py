"""The examples of docs/api.md run as they are written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
from tests.house.repository import DOCS, blocks
from tests.server.support import announce_languages, api_server, serving

PAGE = blocks(DOCS / "api.md")
ANYTHING = "…"


def fits(shown: Any, response: Any) -> bool:
    """Whether the documented JSON is a part of the response."""
    if isinstance(shown, dict) and isinstance(response, dict):
        return all(name in response and fits(value, response[name]) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(response, list):
        return len(shown) == len(response) and all(map(fits, shown, response))
    return bool(shown in (ANYTHING, response))


async def test_examples_respond_as_documented(tmp_path: Path) -> None:
    examples = [(block, PAGE[number + 1]) for number, block in enumerate(PAGE) if block.mark == "shell"]
    assert len(examples) >= 7
    async with api_server() as api, serving(api.app) as url:
        await announce_languages(api.store)
        variables = {"PATH": os.environ["PATH"], "YARD": url, "TOKEN": await api.token("operator")}
        for example, shown in examples:
            process = await asyncio.create_subprocess_exec(
                *("bash", "-euo", "pipefail", "-c", example.text),
                cwd=tmp_path,
                env=variables,
                stdout=asyncio.subprocess.PIPE,
            )
            said, _ = await process.communicate()
            assert (process.returncode, shown.mark) == (0, "response"), example.title
            # Of several responses the last is documented.
            response = msgspec.json.decode(b"{" + said.strip().rpartition(b"}{")[2].removeprefix(b"{"))
            assert fits(msgspec.json.decode(shown.text), response), f"{example.title}: {response}"


def test_partial_match() -> None:
    assert fits({"a": [{"b": ANYTHING}]}, {"a": [{"b": 1, "c": 2}], "d": 3})
    assert not fits({"a": [{"b": 2}]}, {"a": [{"b": 1}]})
    assert not fits({"a": []}, {"a": [1]})
    assert not fits({"a": None}, {})
