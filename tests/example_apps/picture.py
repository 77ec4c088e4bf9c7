"""The picture of examples/product-scanner, from a real run: `python -m tests.example_apps.picture`."""

from __future__ import annotations

import io
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console, Group
from rich.text import Text
from tests.house.repository import DOCS, ROOT

EXAMPLE = ROOT / "examples/product-scanner"
WIDTH = 130
FOLDER = "run/scanner"  # as `make scanner` would show it
# The template of rich loads fonts from the internet.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    sys.path.insert(0, str(EXAMPLE))
    from local_run import live_view  # noqa: PLC0415  # not a package of the tests

    (ROOT / "run").mkdir(exist_ok=True)
    frames: list[tuple[int, float, Group]] = []
    original = live_view.frame

    def recorded(jobs: Any, *rest: Any) -> Group:
        frame = original(jobs, *rest)
        running = [job for job in jobs if job.state == "RUNNING"]
        done = sum(job.progress.percent for job in running if job.progress is not None)
        frames.append((len(running), done, frame))
        return frame

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=WIDTH, height=50, highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "run") as folder, mock.patch.object(live_view, "frame", recorded):
        code = runpy.run_path(str(EXAMPLE / "run.py"))["main"](["--folder", folder], console)
        said = screen.getvalue().replace(str(Path(folder).relative_to(Path.cwd())), FOLDER)
    assert code == 0, said
    picture = Console(file=io.StringIO(), record=True, force_terminal=True, width=WIDTH, highlight=False)
    picture.print("[bold]$ make scanner[/]\n")
    picture.print(max(frames, key=lambda each: each[:2])[2])
    picture.print("\n[dim]…[/]\n")
    picture.print(Text.from_ansi(said[said.rindex("\x1b[1mplatform") :]))
    image = FONTS.sub("", picture.export_svg(title="make scanner"))
    (DOCS / "images/product-scanner.svg").write_text(image, "utf-8")


if __name__ == "__main__":
    main()
