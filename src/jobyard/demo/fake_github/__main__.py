"""Serve a fake GitHub by hand: `python -m jobyard.demo.fake_github --port 0`."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time

from jobyard.demo.fake_github.keys import generate_key
from jobyard.demo.fake_github.model import FakeGitHub
from jobyard.demo.fake_github.server import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m jobyard.demo.fake_github", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="of ids, keys and faults")
    parser.add_argument("--rate-limit", type=int, default=None, help="calls per hour and token; none by default")
    options = parser.parse_args()
    asyncio.run(_serve(options.host, options.port, options.seed, options.rate_limit))


async def _serve(host: str, port: int, seed: int, rate_limit: int | None) -> None:
    rng = random.Random(seed)
    github = FakeGitHub(clock=time.time, rng=rng, app_key=generate_key(rng), rate_limit=rate_limit)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serve(github, host, port) as url:
        addresses = {"url": url, "api": f"{url}/api/v3", "control": f"{url}/_control"}
        sys.stdout.write(json.dumps(addresses) + "\n")
        sys.stdout.flush()
        await stopped.wait()


if __name__ == "__main__":
    main()
