"""The target of a command: a store, or a server named by a flag or a variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click
from click.core import ParameterSource

from jobyard.config import LoadedConfig
from jobyard.config.settings import API_URL, SERVER, STORE
from jobyard.errors import ConfigurationError


class ServerTarget(NamedTuple):
    url: str
    origin: str  # the flag or the variable that named it
    is_alone: bool  # no store is named as well

    @property
    def is_generic(self) -> bool:
        """Whether only a name that other programs use too has named it."""
        return self.origin == API_URL.variable

    def unsupported(self, command: str) -> ConfigurationError:
        return ConfigurationError(
            f"Cannot run `{command}` through a server ({self.origin}): it needs direct access to the store. "
            "Run it where the store is, with --store and without --server."
        )


def generic_server_note(server: ServerTarget | None, found: LoadedConfig, environment: Mapping[str, str]) -> str:
    """A sentence on what API_URL does, used or ignored, because it may be meant for another program.

    Nothing is said about flags and JOBYARD_SERVER, which are given on purpose.
    """
    origin = found.names_store_by() or f"the application of {found.names_app_by()}"
    if server is not None:
        return f"Asking {server.url}, which {server.origin} names." if server.is_generic else ""
    if not environment.get(API_URL.variable) or origin == STORE.flag:
        return ""
    return (
        f"{API_URL.variable} is ignored: the store is named by {origin}, which has more weight. "
        f"To ask the server, pass {SERVER.flag} or set {SERVER.variable}."
    )


def chosen_server(context: click.Context, found: LoadedConfig, environment: Mapping[str, str]) -> ServerTarget | None:
    """A flag wins over variables; --server and --store together are an error."""
    url = context.params.get("server") or ""
    by_flag = context.get_parameter_source("server") is ParameterSource.COMMANDLINE
    store_by_flag = context.get_parameter_source("store") is ParameterSource.COMMANDLINE
    if by_flag and store_by_flag:
        raise click.UsageError("Pass --server or --store, not both.")
    is_alone = by_flag or not (found.has("store", "url") or found.configuration.worker.app is not None)
    if url and not store_by_flag:
        return ServerTarget(url, str(SERVER.flag) if by_flag else SERVER.variable, is_alone)
    # API_URL is a common name, which may be meant for another program: it counts only if nothing names a store.
    # An app does, also with the default store: its workers use that one.
    url = environment.get(API_URL.variable, "")
    return ServerTarget(url, API_URL.variable, is_alone) if url and is_alone and not store_by_flag else None
