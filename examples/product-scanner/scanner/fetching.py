"""Read pages of a site: rendered in a browser, as HTML without one, or as JSON."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin

import httpx2 as httpx

from scanner.browser import ProcessBrowser, renders
from scanner.sites import API, SITES, site_of

LINK = re.compile(r'<a class="product" href="([^"]+)"')
DATA = re.compile(r'<script type="application/ld\+json" id="product">(.*?)</script>', re.DOTALL)
READ = """() => Object.fromEntries(
  ["name", "barcode", "price", "stock"].map((word) => [word, document.getElementById(word).textContent]))"""
CHROMIUM = ProcessBrowser()
# Slow pages take their time; a site that does not answer at all must not hold its platform.
TIMEOUT_SECONDS = 20.0


@dataclass
class Scan:
    """A product as its page shows it, or why that is not known."""

    url: str = ""
    site: str = ""
    is_gone: bool = False  # the page does not exist any more
    barcode: str = ""
    name: str = ""
    price: int = 0
    in_stock: bool = False
    error: str | None = None  # set in place of a scan that failed


class SiteFailed(Exception):
    """The site answered with an error. Trying again may help."""


class PageGone(Exception):
    """404: trying again does not help."""


async def read_listing(shop: str, site: str, visitor: str, **query: Any) -> list[str]:
    """The addresses of the products that a site lists."""
    is_api = SITES[site] == API
    text = await fetch(f"{shop}/{site}/api/products" if is_api else f"{shop}/{site}/", visitor, **query)
    found = json.loads(text)["products"] if is_api else LINK.findall(text)
    return [urljoin(shop, path) for path in found]


async def read_product(url: str, visitor: str) -> Scan:
    site = site_of(url)
    try:
        if SITES[site] == API:
            return Scan(url, site, **await from_api(url, visitor))
        if renders(site):
            return Scan(url, site, **await from_browser(url, visitor))
        return Scan(url, site, **from_html(await fetch(url, visitor)))
    except PageGone:
        return Scan(url, site, is_gone=True)


async def from_api(url: str, visitor: str) -> dict[str, Any]:
    found = json.loads(await fetch(url.replace("/products/", "/api/products/"), visitor))
    return {word: found[word] for word in ("barcode", "name", "price", "in_stock")}


async def from_browser(url: str, visitor: str) -> dict[str, Any]:
    """What a person sees: the script of the page fills in the price and the stock."""
    async with CHROMIUM.page(visitor) as page:
        response = await page.goto(url, timeout=TIMEOUT_SECONDS * 1000)
        status = 0 if response is None else response.status
        if status == HTTPStatus.OK:
            await page.wait_for_selector("body[data-ready]")
            shown = await page.evaluate(READ)
    raise_for_status(url, status)
    price, in_stock = int(shown["price"].removesuffix(" won")), shown["stock"] == "in stock"
    return {"name": shown["name"], "barcode": shown["barcode"], "price": price, "in_stock": in_stock}


def from_html(text: str) -> dict[str, Any]:
    """Without a browser, the data for search engines has to do."""
    data = DATA.search(text)
    if data is None:
        raise SiteFailed("The page has no product data.")
    found = json.loads(data[1])
    offer = found["offers"]
    in_stock = offer["availability"] == "in stock"
    return {"barcode": found["gtin13"], "name": found["name"], "price": offer["price"], "in_stock": in_stock}


@functools.cache
def client() -> httpx.AsyncClient:
    """One for all requests of this process: it keeps connections open."""
    return httpx.AsyncClient(timeout=TIMEOUT_SECONDS)


async def fetch(url: str, visitor: str, **query: Any) -> str:
    response = await client().get(url, params=query, headers={"User-Agent": visitor})
    raise_for_status(url, response.status_code)
    return response.text


def raise_for_status(url: str, status: int) -> None:
    if status == HTTPStatus.NOT_FOUND:
        raise PageGone(url)
    if status != HTTPStatus.OK:
        raise SiteFailed(f"{url} answered {status}")
