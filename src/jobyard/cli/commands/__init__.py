"""The commands, one module per command or group, each imported when it is used: a command starts faster.

To add a command, write `commands/<name>.py` and list it in COMMANDS; a subcommand of a group goes to SUBCOMMANDS, or is
declared in the module of its group.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import click

# The module of each command; the command is its attribute of that name, with _ for -.
COMMANDS = {
    "up": "server",
    "server": "server",
    "worker": "worker",
    "scheduler": "scheduler",
    "enqueue": "enqueue",
    "jobs": "jobs",
    "queues": "queues",
    "groups": "groups",
    "limits": "limits",
    "explain": "explain",
    "dead": "dead",
    "cron": "cron",
    "running": "running",
    "workers": "running",
    "workflows": "workflows",
    "signal": "signal",
    "runners": "runners",
    "top": "top",
    "tokens": "tokens",
    "run": "run",
    "sandbox": "sandbox",
    "sandboxd": "sandboxd",
    "check": "check",
    "config": "config",
    "doctor": "doctor",
    "audit": "audit",
    "audit-log": "audit_log",
    "migrate": "migrate",
    "backup": "backup",
    "alerts": "alerts",
    "bench": "bench",
    "demo": "demo",
}
# Modules with more commands of a group, in their `commands`.
SUBCOMMANDS = {
    "jobs": ("job_actions",),
    "cron": ("cron_edit", "cron_import"),
    "runners": ("runners_check", "runners_import", "runners_manager"),
}


def load_command(name: str) -> click.Command:
    command: click.Command = getattr(_module(COMMANDS[name]), name.replace("-", "_"))
    for part in SUBCOMMANDS.get(name, ()):
        assert isinstance(command, click.Group)
        for each in _module(part).commands:
            command.add_command(each)
    return command


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"jobyard.cli.commands.{name}")
