"""The yard for jobyard's own commands, with Django set up: `jobyard --app shop.worker:yard top`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from shop.jobs import yard  # noqa: E402

__all__ = ["yard"]
