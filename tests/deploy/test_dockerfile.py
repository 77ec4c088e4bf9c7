"""The Dockerfile, checked without a daemon: its files exist, its base is fixed, and it runs without root."""

from __future__ import annotations

import json
import re
import tomllib
from typing import NamedTuple

import click

from jobyard.cli import cli
from tests.deploy.helm import RELEASE, Outcome
from tests.deploy.objects import one, pod_template
from tests.house.repository import ROOT

FOLDER = ROOT / "deploy/docker"
TEXT = (FOLDER / "Dockerfile").read_text("utf-8")


class Instruction(NamedTuple):
    name: str
    text: str


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile, with continued lines joined."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), rest) for name, rest in found]


ALL = instructions(TEXT)
STARTS = [number for number, each in enumerate(ALL) if each.name == "FROM"]
FINAL = ALL[STARTS[-1] :]
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}


def test_it_has_only_instructions_that_are_known_to_be_harmless() -> None:
    assert {each.name for each in ALL} <= KNOWN, "ADD fetches and unpacks; VOLUME discards what later layers write"
    for each in ALL:
        assert not re.search(r"\b(sudo|curl|wget|chmod 777)\b|\| *(ba)?sh\b", each.text), each
        assert each.name not in ("ARG", "ENV") or not re.search(r"(?i)(token|secret|password|_key)=", each.text)


def test_its_base_is_of_a_fixed_version() -> None:
    [base] = [each.text.removeprefix("BASE=") for each in ALL if each.name == "ARG"]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base)
    assert [ALL[number].text.split()[0] for number in STARTS] == ["${BASE}", "${BASE}"]
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    least = tuple(map(int, requires.removeprefix(">=").split(".")))
    assert tuple(map(int, base.removeprefix("python:").split("-")[0].split(".")[:2])) >= least


def test_it_runs_without_root_and_without_writing() -> None:
    names = [each.name for each in FINAL]
    assert "RUN" not in names[names.index("USER") :], "the last user is the one that it runs as"
    assert names.count("USER") == 1
    user, group = FINAL[names.index("USER")].text.split(":")
    assert int(user) > 0
    assert int(group) > 0
    writable = [each.text for each in FINAL if each.name == "RUN"]
    assert writable == [f"chown {user}:{group} /var/lib/jobyard"], "the program itself stays root's"
    assert not any("--chown" in each.text for each in FINAL if each.name == "COPY")
    environment = " ".join(each.text for each in FINAL if each.name == "ENV")
    assert "PYTHONDONTWRITEBYTECODE=1" in environment


def test_its_command_is_one_of_the_program() -> None:
    words = [json.loads(each.text) for each in FINAL if each.name in ("ENTRYPOINT", "CMD")]
    [[program], command] = words  # as lists: a shell would not pass on SIGTERM
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert program in scripts
    root = click.Context(cli, **cli.context_settings)
    found = cli.get_command(root, command[0])
    assert found is not None
    found.make_context(command[0], command[1:], parent=root)
    assert "EXPOSE 8080" in TEXT


def test_it_copies_what_the_context_contains() -> None:
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", TEXT, flags=re.MULTILINE) for word in line.split()
    ]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert ignored[0] == "*"
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == set(copied)


def test_it_installs_what_the_chart_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (extras,) = re.findall(r"'\.\[(.+)\]'", TEXT)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert {"server", "redis", "postgres", "github"} <= set(extras.split(","))
    assert project["version"] in TEXT.partition("\n")[0]


def test_it_runs_as_the_user_of_the_chart(rendered: dict[str, Outcome]) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", TEXT, flags=re.MULTILINE)
    deployment = one(rendered["minimal"].objects, "Deployment", f"{RELEASE}-jobyard")
    context = pod_template(deployment)["spec"]["securityContext"]
    assert user == (str(context["runAsUser"]), str(context["runAsGroup"]))
    assert 'ENTRYPOINT ["jobyard"]' in TEXT
