"""The control API: read the state of the cluster and make things go wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.faults import ApiFault, Faults
from jobyard.demo.fake_kubernetes.model import FakeKubernetes
from jobyard.demo.fake_kubernetes.resources import RESOURCES

Handler = Callable[[Request], Awaitable[Response]]


class NodeLossRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    containers_survive: bool = False
    vanish: bool = False
    unknown_phase: bool = False


class KillRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    container: str | None = None
    exit_code: int = 137
    reason: str | None = None


def state(model: FakeKubernetes) -> JsonObject:
    """The cluster at a glance."""
    pods = []
    for pod in model.storage.all("pods"):
        metadata, status = pod["metadata"], pod["status"]
        pods.append(
            {
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "labels": metadata.get("labels") or {},
                "node": pod["spec"].get("nodeName"),
                "phase": status.get("phase"),
                "reason": status.get("reason"),
                "terminating": "deletionTimestamp" in metadata,
                "containers": {each["name"]: each["state"] for each in status.get("containerStatuses") or []},
            }
        )
    counts = {plural: len(list(model.storage.all(plural))) for plural, each in RESOURCES.items() if not each.review}
    return {
        "revision": model.storage.revision,
        "objects": counts,
        "watches": model.open_watches,
        "nodes": list(model.cluster.nodes.by_name.values()),
        "pods": pods,
        "faults": model.faults,
    }


def control_routes(model: FakeKubernetes) -> list[Route]:
    async def show(_: Request) -> Response:
        return _json(state(model))

    async def set_faults(request: Request) -> Response:
        model.faults = msgspec.json.decode(await request.body(), type=Faults)
        return _json(state(model))

    async def add_fault(request: Request) -> Response:
        model.inject(msgspec.json.decode(await request.body(), type=ApiFault))
        return _json(state(model))

    async def change_pod(request: Request) -> Response:
        namespace, name, action = (request.path_params[part] for part in ("namespace", "name", "action"))
        match action:
            case "kill":
                asked = msgspec.json.decode(await request.body() or b"{}", type=KillRequest)
                model.kill_container(namespace, name, asked.container, asked.exit_code, asked.reason)
            case "evict":
                model.evict_pod(namespace, name)
            case "delete":
                model.delete_pod(namespace, name)
            case _:
                return _json({"error": "The actions are kill, evict and delete."}, 404)
        return _json(state(model))

    async def change_node(request: Request) -> Response:
        name, action = request.path_params["name"], request.path_params["action"]
        if action == "restore":
            model.restore_node(name)
        elif action == "lose":
            asked = msgspec.json.decode(await request.body() or b"{}", type=NodeLossRequest)
            model.lose_node(name, **msgspec.structs.asdict(asked))
        else:
            return _json({"error": "The actions are lose and restore."}, 404)
        return _json(state(model))

    async def change_watches(request: Request) -> Response:
        if request.url.path.endswith("compact"):
            model.compact()
        else:
            model.cut_watches()
        return _json(state(model))

    return [
        Route("/_control", _guarded(show), methods=["GET"]),
        Route("/_control/faults", _guarded(set_faults), methods=["PUT"]),
        Route("/_control/faults", _guarded(add_fault), methods=["POST"]),
        Route("/_control/pods/{namespace}/{name}/{action}", _guarded(change_pod), methods=["POST"]),
        Route("/_control/nodes/{name}/{action}", _guarded(change_node), methods=["POST"]),
        Route("/_control/compact", _guarded(change_watches), methods=["POST"]),
        Route("/_control/cut-watches", _guarded(change_watches), methods=["POST"]),
    ]


def _guarded(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except KeyError as problem:
            return _json({"error": f"Not found: {problem.args[0]}"}, 404)
        except msgspec.MsgspecError as problem:
            return _json({"error": str(problem)}, 400)

    return answer


def _json(content: Any, status_code: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status_code, media_type="application/json")
