"""`manage.py run_worker`: run the jobs of the shop."""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    help = "Run the jobs of the shop until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--concurrency", default="4")
        parser.add_argument("--queue", action="append", default=[], help="only this queue; repeatable")

    def handle(self, *args: Any, **options: Any) -> None:
        words = [sys.executable, "-m", "jobyard", "--app", "shop.worker:yard", "worker"]
        words += ["--concurrency", options["concurrency"]]
        for queue in options["queue"]:
            words += ["--queue", queue]
        os.execv(sys.executable, words)  # the worker takes the place of this process, and receives its signals
