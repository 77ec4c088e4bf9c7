"""Output of findings, and the exit code that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.markup import escape

from jobyard.cli.session import Session
from jobyard.ports.store import Finding, Level

COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


def report(session: Session, findings: Sequence[Finding], more: dict[str, Any] | None = None) -> None:
    """Print the findings; exit code 1 if one of them is a failure."""
    worst = max((finding.level for finding in findings), key=list(Level).index, default=Level.OK)
    if session.as_json:
        session.print_json({"level": worst, "findings": findings} | (more or {}))
    else:
        for finding in findings:
            colour = COLOURS[finding.level]
            session.print_markup(f"[{colour}]{finding.level:<4}[/] {finding.check}: {escape(finding.message)}")
            if finding.advice:
                session.print_markup(f"     → {escape(finding.advice)}")
    if worst is Level.FAIL:
        raise click.exceptions.Exit(1)
