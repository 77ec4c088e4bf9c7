"""Import of the user's application, given as module:attribute."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

from jobyard.app.jobyard import Jobyard
from jobyard.errors import ConfigurationError

log = logging.getLogger("jobyard.app")


def load_app(name: str) -> Jobyard:
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigurationError(f"Cannot load app {name!r}: write it as module:attribute, for example shop.jobs:yard.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    value = _import(module_name)
    seen = module_name
    apps = [word for word, found in vars(value).items() if isinstance(found, Jobyard)]
    hint = f" Did you mean {module_name}:{apps[0]}?" if apps else ""
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ConfigurationError(f"Cannot load app {name}: {seen} has no attribute {part}.{hint}")
        value, seen = getattr(value, part), f"{seen}.{part}"
    if not isinstance(value, Jobyard):
        raise ConfigurationError(f"Cannot load app {name}: it is of type {type(value).__name__}, not Jobyard.{hint}")
    return value


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"Cannot import {error.name}: no such module in {Path.cwd()} or on the Python path."
            ) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> ConfigurationError:
    log.debug("cannot import %s", name, exc_info=error)
    return ConfigurationError(f"Cannot import {name}: {type(error).__name__}: {error} (--log-level debug shows where).")
