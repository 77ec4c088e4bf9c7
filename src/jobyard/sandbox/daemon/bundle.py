"""The modules of `inside` as one script for standard input, because no file of jobyard is readable inside."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

_PACKAGE = f"{__package__}.inside"
_MODULES = (
    "kernel", "protocol", "tracebacks", "exit", "program", "connection_limiter", "box", "root", "namespace_pool",
    "huge_pages", "zygote", "reaper",
)  # fmt: skip
_INSIDE = Path(__file__).parent / "inside"

# The last line runs the program from a frame that holds only the program, so a walk up the stack finds nothing else.
_BOOT = """
def _start():
    import base64, json, sys, types
    modules = json.loads({modules!r})
    config = json.loads({config!r})
    config["filters"] = [base64.b64decode(text) for text in config["filters"]]
    name = {package!r}
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        package = types.ModuleType(".".join(parts[:count]))
        package.__path__ = []
        sys.modules[package.__name__] = package
    for short, source in modules:
        module = types.ModuleType(name + "." + short)
        sys.modules[module.__name__] = module
        setattr(package, short, module)
        exec(compile(source, "<" + short + ">", "exec"), module.__dict__)
    sys.argv = [""]
    run, exit_with = module.run, package.exit.run
    del modules, module, package, source
    made = run(config)
    globals().clear()
    return exit_with, made


_exit_with, _made = _start()
_exit_with(*_made)
"""


def script(config: dict[str, Any]) -> bytes:
    modules = json.dumps([[name, (_INSIDE / f"{name}.py").read_text()] for name in _MODULES])
    packed = json.dumps({**config, "filters": [base64.b64encode(data).decode() for data in config["filters"]]})
    return _BOOT.format(modules=modules, config=packed, package=_PACKAGE).encode()
