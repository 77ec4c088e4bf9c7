"""Run the fake Kubernetes API by hand: python -m jobyard.demo.fake_kubernetes --port 8001."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
from pathlib import Path

from jobyard.demo.fake_kubernetes.access import User
from jobyard.demo.fake_kubernetes.faults import PodPlan
from jobyard.demo.fake_kubernetes.model import FakeKubernetes
from jobyard.demo.fake_kubernetes.server import serve


def kubeconfig(url: str, namespace: str, token: str) -> str:
    """A kubeconfig as JSON, which every YAML reader accepts."""
    name = "fake"
    context = {"cluster": name, "user": name, "namespace": namespace}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    return json.dumps(content, indent=2) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m jobyard.demo.fake_kubernetes", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 chooses a free one (default)")
    parser.add_argument("--namespace", action="append", help="namespace to create; may be repeated (default: default)")
    parser.add_argument("--token", default="", help="bearer token of an administrator; without it none is needed")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    parser.add_argument("--run-seconds", type=float, help="how long containers run (default: until they are deleted)")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig file for this server")
    return parser.parse_args()


async def main() -> None:
    arguments = _arguments()
    namespaces = tuple(arguments.namespace or ["default"])
    tokens = {arguments.token: User(name="admin")} if arguments.token else {}
    model = FakeKubernetes(rng=random.Random(arguments.seed), namespaces=namespaces, tokens=tokens)
    model.faults.plan = PodPlan(run_seconds=arguments.run_seconds)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(model, arguments.host, arguments.port) as url:
        if arguments.kubeconfig:
            arguments.kubeconfig.write_text(kubeconfig(url, namespaces[0], arguments.token), "utf-8")
        sys.stdout.write(json.dumps({"url": url, "namespaces": namespaces}) + "\n")
        sys.stdout.flush()
        await stop.wait()
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
