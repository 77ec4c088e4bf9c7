"""Files of the dashboard, by a hash of their content, so that browsers can keep them for ever."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PAGE = "index.html"
# In the page, and in no other file.
HASH, SESSION, STORE = b"{hash}", b"{session}", b"{store}"
# Smaller files grow when they are compressed, or gain nothing.
MIN_COMPRESSED_BYTES = 500


class Asset(NamedTuple):
    media_type: str
    data: bytes
    compressed: bytes  # by gzip


class Assets(NamedTuple):
    page: bytes
    digest: str
    by_name: dict[str, Asset]  # the name of a page's module begins with "pages/"


@cache
def load_assets() -> Assets:
    """Read all files of the dashboard.

    One hash stands for all files: modules import each other by relative paths, which must not change.
    """
    folder = files("jobyard.dashboard") / "static"
    found = dict(sorted(read_files(folder)))
    page = found.pop(PAGE)
    digest = hashlib.sha256(b"\0".join(name.encode() + b"\0" + data for name, data in found.items())).hexdigest()[:16]
    by_name = {name: asset_of(name, data) for name, data in found.items()}
    return Assets(page.replace(HASH, digest.encode()), digest, by_name)


def read_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from read_files(entry, f"{name}/")
        elif name == PAGE or suffix(name) in MEDIA_TYPES:
            yield name, entry.read_bytes()


def asset_of(name: str, data: bytes) -> Asset:
    compressed = gzip.compress(data, mtime=0) if len(data) >= MIN_COMPRESSED_BYTES else data
    return Asset(MEDIA_TYPES[suffix(name)], data, compressed)


def suffix(name: str) -> str:
    """
    >>> suffix("pages/job.js"), suffix("README")
    ('.js', '')
    """
    return name[name.rfind(".") :] if "." in name else ""
