"""The sites that are scanned, and how: in a browser, or through their JSON API."""

from __future__ import annotations

from urllib.parse import urlsplit

BROWSER, API = "browser", "api"
# A site is also a platform: a queue of this name in jobyard.yaml, with the same class.
SITES = {
    "oliveyoung": BROWSER,
    "ably": BROWSER,
    "kurly": BROWSER,
    "hwahae": API,
    "musinsa": API,
    "zigzag": API,
}
# Platforms without a site of their own: work on several sites, and everything else.
PLATFORMS = (*SITES, "extract", "default")


def site_of(url: str) -> str:
    """The site that serves this page.

    >>> site_of("http://127.0.0.1:8000/ably/products/ab-101")
    'ably'
    """
    name = urlsplit(url).path.strip("/").partition("/")[0]
    if name not in SITES:
        raise ValueError(f"Cannot scan {url}: its path must begin with one of {', '.join(SITES)}.")
    return name
