"""The HTTP server of the shop: listings and products as HTML and as JSON, with faults, and a log of all requests."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from scanner.shop.catalogue import Catalogue, Fault, Product
from scanner.shop.pages import document, listing, product_page
from scanner.sites import API, SITES

LATENCY_SECONDS = 0.25  # of every response, as of a site that is far away
SLOW_SECONDS = 1.5  # of a slow product
HTML, JSON = "text/html; charset=utf-8", "application/json"


class NoSuchPage(Exception):
    """Answered with 404."""


class Shop(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        catalogue: Catalogue,
        port: int = 0,
        *,
        latency_seconds: float = LATENCY_SECONDS,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        super().__init__(("127.0.0.1", port), ShopRequest)
        self.catalogue = catalogue
        self.latency_seconds = latency_seconds
        self.slow_seconds = slow_seconds
        self.products = {product.path: product for product in catalogue.all_products()}
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def count(self, path: str) -> int:
        """How often this product was requested, this time included."""
        with self._lock:
            self._requests[path] += 1
            return self._requests[path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A visitor that has gone, such as a killed worker, is not a fault of the shop."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def log(self, visit: dict[str, Any]) -> None:
        """One line of JSON for each request."""
        with self._lock:
            print(json.dumps({**visit, "ended": time.time()}), file=sys.stderr, flush=True)


class ShopRequest(BaseHTTPRequestHandler):
    server: Shop
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        began = time.time()
        time.sleep(self.server.latency_seconds)
        address = urlsplit(self.path)
        try:
            status, kind, text = self.page(address.path, parse_qs(address.query))
        except NoSuchPage:
            status, kind, text = HTTPStatus.NOT_FOUND, HTML, document("Not found")
        is_browser = "Sec-Fetch-Mode" in self.headers
        visitor = self.headers["User-Agent"]
        visit = {"path": address.path, "visitor": visitor, "is_browser": is_browser, "began": began, "status": status}
        self.server.log(visit)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def page(self, path: str, query: dict[str, list[str]]) -> tuple[HTTPStatus, str, str]:
        match path.strip("/").split("/"):
            case [site] if site in SITES:
                return self.listing(site, query, as_json=False)
            case [site, "products", code]:
                return self.product(f"/{site}/products/{code}", as_json=False)
            case [site, "api", "products"] if SITES.get(site) == API:
                return self.listing(site, query, as_json=True)
            case [site, "api", "products", code] if SITES.get(site) == API:
                return self.product(f"/{site}/products/{code}", as_json=True)
        raise NoSuchPage

    def listing(self, site: str, query: dict[str, list[str]], *, as_json: bool) -> tuple[HTTPStatus, str, str]:
        catalogue = self.server.catalogue
        given = query.get("page", ["1"])[0]
        number = int(given) if given.isdecimal() else 0
        if not 1 <= number <= catalogue.pages:
            raise NoSuchPage
        found = catalogue.page(site, number)
        if "barcode" in query:
            found = [product for product in catalogue.products(site) if product.barcode == query["barcode"][0]]
        if as_json:
            return HTTPStatus.OK, JSON, json.dumps({"products": [product.path for product in found]})
        return HTTPStatus.OK, HTML, listing(site, found, number, catalogue.pages)

    def product(self, path: str, *, as_json: bool) -> tuple[HTTPStatus, str, str]:
        product = self.server.products.get(path)
        if product is None or product.fault is Fault.GONE:
            raise NoSuchPage
        count = self.server.count(path)
        if product.fault is Fault.BROKEN:
            return HTTPStatus.INTERNAL_SERVER_ERROR, HTML, document("The shop has a fault")
        if product.fault is Fault.FLAKY and count == 1:
            return HTTPStatus.SERVICE_UNAVAILABLE, HTML, document("Come back in a moment")
        if product.fault is Fault.SLOW:
            time.sleep(self.server.slow_seconds)
        return (HTTPStatus.OK, JSON, as_document(product)) if as_json else (HTTPStatus.OK, HTML, product_page(product))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: each request is logged once, when its response is known."""


def as_document(product: Product) -> str:
    return json.dumps(
        {
            "code": product.code,
            "barcode": product.barcode,
            "name": product.name,
            "price": product.price,
            "in_stock": product.in_stock,
        }
    )
