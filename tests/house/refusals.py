"""The problems that the server responds with, read from its source: each code and its statuses."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.house.repository import ROOT

SERVER = ROOT / "src/jobyard/server"
# What makes a problem document: its status first, then its code.
MAKERS = {"HttpError", "problem", "_reject"}


def refusals() -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for path in sorted(SERVER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for status, code in _problem(node, f"{path.name}:{getattr(node, 'lineno', 0)}"):
                found[code] |= {status} - {0}
    return found


def _problem(node: ast.AST, where: str) -> Iterator[tuple[int, str]]:
    if not isinstance(node, ast.Call | ast.Tuple):
        return
    words = node.elts if isinstance(node, ast.Tuple) else node.args
    is_made = isinstance(node, ast.Call) and _name(node.func) in MAKERS
    match words[:2]:
        case [ast.Constant(value=int(status)), ast.Constant(value=str(code))] if is_made or 400 <= status < 600:
            if is_made or len(words) == 3:  # a refusal of the wire, before it is sent
                yield status, code
        case [_, ast.Constant(value=str(code))] if is_made:
            yield 0, code
        case [_, ast.Attribute(attr="code") | ast.Name(id="code")] | []:
            pass  # passed on
        case _:
            assert not is_made, f"{where}: a problem's code should stand where it is made"


def _name(of: ast.expr) -> str:
    return of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
