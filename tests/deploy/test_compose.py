"""The compose files: valid, 29 GB in all, a worker for each platform, and commands that jobyard understands."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest
import yaml

from jobyard.cli import cli
from jobyard.config import LoadedConfig, load
from jobyard.config.platform_keys import memory_size
from jobyard.domain.platforms import GIGABYTE, memory_budget
from tests.house.repository import ROOT

FOLDER = ROOT / "deploy/compose"
CONFIGURATION = FOLDER / "jobyard.yaml"
# As compose substitutes them: a value with a default, or one that must be given.
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?([^}]*))\}")
TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
TIME = {"type": "string", "pattern": r"^\d+s$"}
SIZE = {"type": "string", "pattern": r"^\d+[gm]$"}


def strict(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def named(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of, "propertyNames": {"pattern": "^[a-z][a-z0-9_-]*$"}}


WATCHED = strict("action path", action={"enum": ["restart"]}, path=TEXT)
# The part of the Compose Specification that the files use; a key that is spelt wrong is not in it.
SERVICE = strict(
    "",
    image=TEXT,
    build=strict("context dockerfile", context=TEXT, dockerfile=TEXT),
    command=TEXTS,
    environment={"type": "object", "additionalProperties": {"type": "string"}},
    restart={"enum": ["unless-stopped"]},
    init={"type": "boolean"},
    stop_grace_period=TIME,
    depends_on=named(strict("condition", condition={"enum": ["service_healthy"]})),
    working_dir=TEXT,
    volumes=TEXTS,
    configs={"type": "array", "items": strict("source target", source=TEXT, target=TEXT)},
    secrets=TEXTS,
    ports=TEXTS,
    mem_limit=SIZE,
    shm_size=SIZE,
    healthcheck=strict(
        "test interval timeout retries",
        test=TEXTS,
        interval=TIME,
        timeout=TIME,
        start_period=TIME,
        retries={"type": "integer", "minimum": 1},
    ),
    logging=strict("driver options", driver=TEXT, options={"type": "object", "additionalProperties": TEXT}),
    develop=strict("watch", watch={"type": "array", "items": WATCHED, "minItems": 1}),
)
FILE = strict(
    "services",
    name=TEXT,
    services=named(SERVICE),
    configs=named(strict("file", file=TEXT)),
    secrets=named(strict("file", file=TEXT)),
    volumes=named(strict()),
)


def substituted(found: re.Match[str]) -> str:
    return "app:yard" if found[2] is None else found[2]


def read(name: str) -> dict[str, Any]:
    text = VARIABLE.sub(substituted, (FOLDER / name).read_text("utf-8"))
    document: dict[str, Any] = yaml.safe_load(text)
    return {key: value for key, value in document.items() if not key.startswith("x-")}


PLATFORMS = read("platforms.yml")
SERVICES: dict[str, dict[str, Any]] = PLATFORMS["services"]
DEVELOPMENT: dict[str, dict[str, Any]] = read("compose.dev.yml")["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "redis"}
WORKERS = {name: service for name, service in OURS.items() if name != "server"}


def configuration(name: str) -> LoadedConfig:
    """As the container reads it."""
    environment: dict[str, str] = OURS[name]["environment"]
    [mounted] = OURS[name]["configs"]
    assert mounted["target"] == environment["JOBYARD_CONFIG"]
    assert PLATFORMS["configs"][mounted["source"]]["file"] == f"./{CONFIGURATION.name}"
    secrets = {variable: value for variable, value in environment.items() if variable.endswith("_FILE")}
    assert set(secrets.values()) <= {f"/run/secrets/{each}" for each in OURS[name].get("secrets", ())}
    return load({key: value for key, value in environment.items() if key not in secrets}, str(CONFIGURATION))


@pytest.mark.parametrize("name", ["platforms.yml", "compose.dev.yml"])
def test_a_file_has_only_keys_of_the_specification(name: str) -> None:
    jsonschema_rs.validate(FILE, read(name))


def test_the_memory_is_29_gigabytes() -> None:
    sizes = {name: memory_size(name, service["mem_limit"]) / GIGABYTE for name, service in SERVICES.items()}
    assert sizes == {
        "server": 4,
        **dict.fromkeys(("oliveyoung", "ably", "kurly", "extract"), 4),
        **dict.fromkeys(("hwahae", "musinsa", "zigzag", "default"), 2),
        "redis": 1,
    }
    assert sum(sizes.values()) == 29
    shared = {name: service["shm_size"] for name, service in SERVICES.items() if "shm_size" in service}
    assert shared == dict.fromkeys(("oliveyoung", "ably", "kurly"), "2g")


def test_the_workers_serve_each_platform_once() -> None:
    served: Counter[str] = Counter()
    for name, service in WORKERS.items():
        found = configuration(name).configuration
        served.update(found.worker.platforms)
        assert memory_budget(found.platforms, found.worker.platforms) == memory_size("", service["mem_limit"])
        assert (found.log.service_name, found.log.format) == (name, "json")
    platforms = configuration("server").configuration.platforms
    assert served == Counter(platforms.keys())
    assert {each.max_running for each in platforms.values()} == {1}


@pytest.mark.parametrize("name", OURS)
def test_each_command_line_parses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JOBYARD_APP", "JOBYARD_STORE", "PORT"):
        monkeypatch.delenv(variable, raising=False)
    words = OURS[name]["command"]
    root = click.Context(cli, **cli.context_settings)  # click keeps the help option that it makes from these
    command = cli.get_command(root, words[0])
    assert command is not None
    context = command.make_context(words[0], words[1:], parent=root)
    assert context.command.name == ("server" if name == "server" else "worker")
    port = context.params["port" if name == "server" else "health_port"]
    assert f":{port}/readyz" in OURS[name]["healthcheck"]["test"][-1]
    if name == "server":
        assert (port, OURS[name]["ports"]) == (3989, ["3989:3989"])


@pytest.mark.parametrize("name", SERVICES)
def test_each_container_is_healthy_or_restarted(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"
    if name in OURS:
        assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}
        seconds = int(service["stop_grace_period"].rstrip("s"))
        assert seconds >= load({}, str(CONFIGURATION)).configuration.worker.shutdown_timeout + 10
        compile(service["healthcheck"]["test"][-1], name, "exec")


def test_redis_keeps_its_jobs() -> None:
    words = SERVICES["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert memory_size("", options["--maxmemory"]) < GIGABYTE
    assert SERVICES["redis"]["volumes"] == ["redis:/data"]
    assert "ports" not in SERVICES["redis"]


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_no_file_holds_a_secret(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"jy_|password|://[^/\s]*@", text, re.IGNORECASE)
    for line in text.splitlines():
        found = re.match(r"\s*(\w*(?:token|secret|key)\w*)\s*:\s*(\S.*)", line, re.IGNORECASE)
        assert found is None or found[2].startswith(("{file:", "/run/secrets/", "[admin_token]")), line


def test_the_image_is_that_of_the_dockerfile() -> None:
    build = SERVICES["server"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    dockerfile = (ROOT / build["dockerfile"]).read_text("utf-8")
    assert {service["image"] for service in OURS.values()} == {"jobyard:0.1.0"}
    assert "jobyard:0.1.0" in dockerfile


def test_development_mounts_the_source_and_restarts() -> None:
    assert set(DEVELOPMENT) == set(OURS)
    for service in DEVELOPMENT.values():
        assert "../../src:/src:ro" in service["volumes"]
        assert service["environment"]["PYTHONPATH"] == "/src"
        paths = [each["path"] for each in service["develop"]["watch"]]
        assert (FOLDER / paths[0]).resolve() == ROOT / "src"
