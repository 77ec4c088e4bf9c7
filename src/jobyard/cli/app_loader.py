"""The user's application from module:attribute."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

from jobyard.app.jobyard import Jobyard
from jobyard.errors import ConfigurationError, did_you_mean

log = logging.getLogger("jobyard.app")


def load_app(name: str) -> Jobyard:
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigurationError(f"The app is written module:attribute (for example shop.jobs:yard), not {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    value = _import(module_name)
    seen = module_name
    for part in attribute.split("."):
        if not hasattr(value, part):
            hint = did_you_mean(part, [word for word in vars(value) if not word.startswith("_")])
            raise ConfigurationError(f"{seen} has no {part}.{hint}")
        value, seen = getattr(value, part), f"{seen}.{part}"
    if not isinstance(value, Jobyard):
        raise ConfigurationError(f"{name} is a {type(value).__name__}, not a Jobyard.")
    return value


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"There is no module {error.name}: looked in {Path.cwd()} and on the Python path."
            ) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> ConfigurationError:
    log.debug("importing %s failed", name, exc_info=error)
    return ConfigurationError(
        f"Importing {name} failed: {type(error).__name__}: {error} (--log-level debug shows where)."
    )
