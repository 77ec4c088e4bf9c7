"""Requests, responses and webhooks held against GitHub's own OpenAPI descriptions."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
from tests.servers import github_descriptions
from tests.servers.github_descriptions import REST, WEBHOOKS

Schema = dict[str, Any]
# Any call may answer with these, whether or not the description of the operation lists them.
GENERAL_ERRORS = frozenset({400, 401, 403, 404, 429, 500, 502, 503, 504})
# The description wants each account of this list to be a user and an enterprise at once; the operation for one
# installation has it right and is checked.
MISDESCRIBED = {("GET", "/app/installations")}
ERROR_SCHEMA = {"$ref": "#/components/schemas/basic-error"}


class ContractBroken(AssertionError):
    """What was sent or answered is not what the description says."""


class Contract:
    """The description of one version of GitHub Enterprise Server."""

    def __init__(self, version: str) -> None:
        self._rest = _Document(github_descriptions.load(REST, version), strict=True)
        self._webhooks = _Document(github_descriptions.load(WEBHOOKS, version), strict=False)
        self._operations = [
            (_pattern(template), template, method.upper(), operation)
            for template, methods in self._rest.document["paths"].items()
            for method, operation in methods.items()
        ]

    def template(self, method: str, path: str) -> str:
        """The path of the operation in the description, for instance `/orgs/{org}/actions/runners`."""
        return self._operation(method, path)[0]

    def check_request(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> None:
        """`path` is relative to the base of the API. Unknown parameters and a missing body are errors too."""
        _, operation = self._operation(method, path)
        where = f"{method} {path}"
        parameters = [self._rest.resolve(each) for each in operation.get("parameters", [])]
        known = {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}
        for name, text in query.items():
            if name not in known:
                raise ContractBroken(f"{where}: there is no parameter {name}")
            kind = self._rest.resolve(known[name]).get("type")
            self._rest.check(known[name], int(text) if kind == "integer" else text, f"{where}: {name}")
        described = operation.get("requestBody")
        if described is None:
            if body:
                raise ContractBroken(f"{where}: a body was sent, none is described")
        elif body or described.get("required"):
            self._rest.check(described["content"]["application/json"]["schema"], json.loads(body), where)

    def check_response(self, method: str, path: str, status: int, body: bytes) -> None:
        template, operation = self._operation(method, path)
        if (method, template) in MISDESCRIBED:
            return
        where = f"{method} {path} -> {status}"
        responses = operation["responses"]
        if str(status) not in responses:
            if status not in GENERAL_ERRORS:
                raise ContractBroken(f"{where}: not among {sorted(responses)}")
            self._rest.check(ERROR_SCHEMA, json.loads(body), where)
            return
        content = self._rest.resolve(responses[str(status)]).get("content")
        if content is None:
            if body:
                raise ContractBroken(f"{where}: a body was sent, none is described")
            return
        self._rest.check(content["application/json"]["schema"], json.loads(body), where)

    def check_webhook(self, headers: Mapping[str, str], payload: Mapping[str, Any]) -> None:
        event, action = headers["X-GitHub-Event"], payload.get("action")
        name = "-".join(part.replace("_", "-") for part in (event, action) if part)
        operation = self._webhooks.document["webhooks"][name]["post"]
        sent = {each.lower() for each in headers}
        for parameter in operation["parameters"]:
            if parameter["required"] and parameter["name"].lower() not in sent:
                raise ContractBroken(f"{name}: header {parameter['name']} is missing")
        self._webhooks.check(operation["requestBody"]["content"]["application/json"]["schema"], payload, name)

    def _operation(self, method: str, path: str) -> tuple[str, dict[str, Any]]:
        matching = [
            (template, operation)
            for pattern, template, verb, operation in self._operations
            if verb == method and pattern.fullmatch(path)
        ]
        if not matching:
            raise ContractBroken(f"{method} {path}: there is no such operation")
        # A literal part such as `generate-jitconfig` comes before a parameter.
        return min(matching, key=lambda found: found[0].count("{"))


class _Document:
    """A description whose schemas become validators. Strict: properties that are not described are errors."""

    def __init__(self, document: dict[str, Any], *, strict: bool) -> None:
        self.document = document
        self._strict = strict
        self._validator = functools.cache(self._build)

    def resolve(self, node: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in node:
            node = functools.reduce(lambda inner, key: inner[key], node["$ref"][2:].split("/"), self.document)
        return node

    def check(self, schema: Schema, value: object, where: str) -> None:
        errors = [
            f"{'/'.join(map(str, error.instance_path))}: {error.message}"
            for error in self._validator(json.dumps(schema)).iter_errors(value)
        ]
        if errors:
            raise ContractBroken(f"{where}: " + "; ".join(errors[:5]))

    def _build(self, text: str) -> jsonschema_rs.Draft202012Validator:
        definitions: dict[str, Schema] = {}
        root = self._converted(json.loads(text), definitions)
        return jsonschema_rs.Draft202012Validator({**root, "$defs": definitions}, validate_formats=True)

    def _converted(self, node: Any, definitions: dict[str, Schema], *, part: bool = False) -> Any:
        """JSON Schema out of OpenAPI's dialect. `part`: one of several schemas that hold for the same object."""
        if isinstance(node, list):
            return [self._converted(each, definitions, part=part) for each in node]
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str):
            name = node["$ref"].rpartition("/")[2]
            if name not in definitions:
                definitions[name] = {}  # a schema may refer to itself
                definitions[name] = self._converted(self.resolve(node), definitions, part=part)
            return {"$ref": f"#/$defs/{name}"}
        made = {
            key: _literal(key, value)
            or self._converted(value, definitions, part=part or key in ("allOf", "anyOf", "oneOf"))
            for key, value in node.items()
            if key not in ("nullable", "example", "examples", "description", "title", "deprecated", "readOnly")
            or isinstance(value, dict)  # a property of that name
        }
        if self._strict and not part and "properties" in made and node.get("type") == "object":
            made.setdefault("additionalProperties", False)
        return {"anyOf": [made, {"type": "null"}]} if node.get("nullable") is True else made


def _literal(key: str, value: Any) -> Any:
    """Lists of plain values stay as they are."""
    return value if key in ("enum", "required", "type", "default") and not isinstance(value, dict) else None


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)))


@functools.cache
def contract(version: str) -> Contract:
    return Contract(version)
