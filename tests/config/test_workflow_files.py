"""Workflow files from a folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import yaml
from tests.domain.workflow_files.support import SCAN

from jobyard.config.workflow_files import load_folder, read_folder, read_workflow
from jobyard.domain.workflow_files.schema import SCHEMA
from jobyard.domain.workflow_files.source import MAX_BYTES, Format
from jobyard.errors import ConfigurationError, InvalidWorkflow


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def small(name: str) -> str:
    return json.dumps({"id": name, "steps": [{"id": "a", "kind": "k"}]})


def test_json_and_yaml_files_are_loaded_by_id(tmp_path: Path) -> None:
    path = write(tmp_path, "b.json", small("one"))
    write(tmp_path, "a.yaml", "id: two\nsteps:\n  - {id: a, kind: 'no'}")
    write(tmp_path, "c.yml", yaml.safe_dump(SCAN, sort_keys=False))
    write(tmp_path, "README.md", "not a workflow")
    write(tmp_path, "workflow.schema.json", json.dumps(SCHEMA))
    (tmp_path / "folder.json").mkdir()
    found = load_folder(tmp_path)
    assert list(found) == ["two", "one", "scan"]
    assert found["one"].file == str(path)
    assert found["one"].digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (found["two"].text_format, found["two"].steps[0].kind) == (Format.YAML, "no")
    assert found["scan"].steps == read_workflow(write(tmp_path, "scan.json", json.dumps(SCAN))).steps


def test_the_problems_of_all_files_are_reported_and_the_others_are_loaded(tmp_path: Path) -> None:
    write(tmp_path, "a.json", small("one"))
    write(tmp_path, "b.json", small("one"))
    write(tmp_path, "c.json", small("x").replace("kind", "knd"))
    write(tmp_path, "d.yaml", "id: [")
    write(tmp_path, "e.json", b"\xff")
    write(tmp_path, "f.json", "é" * MAX_BYTES)
    found = read_folder(tmp_path)
    assert list(found.definitions) == ["one"]
    lines = [line.removeprefix(f"{tmp_path}/") for line in found.problems]
    assert lines[0] == f'b.json: /id: is "one", as that of {tmp_path}/a.json. Rename one.'
    assert [line.split(":")[0] for line in lines] == ["b.json", "c.json", "c.json", "d.yaml", "e.json", "f.json"]
    assert lines[-2:] == ["e.json: The file is not UTF-8 text.", "f.json: The file has more than 1,048,576 bytes."]
    with pytest.raises(InvalidWorkflow) as caught:
        load_folder(tmp_path)
    assert caught.value.problems == found.problems


def test_kinds_and_platforms_are_checked_if_they_are_known(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", json.dumps({"id": "w", "platform": "ably", "steps": [{"id": "a", "kind": "k"}]}))
    assert read_workflow(path, kinds=["k"], platforms=["ably"]) == read_workflow(path)
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(path, kinds=["kk"], platforms=["albly"])
    assert len(caught.value.problems) == 2


def test_a_folder_or_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_folder(tmp_path / "nothing")
    with pytest.raises(InvalidWorkflow, match="No such file"):
        read_workflow(tmp_path / "nothing.json")
    with pytest.raises(InvalidWorkflow, match=r"must be named \.json"):
        read_workflow(tmp_path / "scan.toml")


def test_a_pipe_in_the_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    assert load_folder(tmp_path) == {}
