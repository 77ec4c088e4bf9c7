"""The parts of examples/product-scanner: its shop, its pages, its handlers and its files."""

from __future__ import annotations

import doctest
import threading
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from tests.house.repository import ROOT

from jobyard.app.declarations import declarations_of
from jobyard.config.workflow_files import load_folder
from scanner import app, browser, database, fetching
from scanner.app import Finding, validate_products, write_best_offer, write_report, write_results
from scanner.fetching import Scan, SiteFailed, read_listing, read_product
from scanner.shop.catalogue import Catalogue, Fault, Product
from scanner.shop.server import Shop
from scanner.sites import PLATFORMS, SITES

EXAMPLE = ROOT / "examples/product-scanner"
CATALOGUE = Catalogue(seed=1, pages=2, per_page=3)


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    with Shop(CATALOGUE, latency_seconds=0, slow_seconds=0.01) as shop:
        thread = threading.Thread(target=shop.serve_forever, args=(0.01,))
        thread.start()
        yield shop
        await fetching.client().aclose()
        fetching.client.cache_clear()  # the next test has another event loop
        shop.shutdown()
        thread.join()


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with two products."""
    path = str(tmp_path / "products.db")
    monkeypatch.setenv(database.PATH, path)
    row = {"site": "ably", "barcode": "880", "name": "Rice Toner", "price": 1000, "in_stock": 1}
    database.create(path, [{**row, "url": "/ably/1"}, {**row, "url": "/ably/2"}])
    return path


def faulty(site: str, fault: Fault) -> Product:
    return next(product for product in CATALOGUE.products(site) if product.fault is fault)


def sound(site: str) -> Product:
    return next(product for product in CATALOGUE.products(site) if product.fault is None)


def as_scan(shop: Shop, product: Product) -> Scan:
    url = shop.url + product.path
    return Scan(url, product.site, False, product.barcode, product.name, product.price, product.in_stock)


def test_the_same_seed_makes_the_same_shop() -> None:
    assert CATALOGUE.all_products() == Catalogue(1, 2, 3).all_products() != Catalogue(2, 2, 3).all_products()
    for site in SITES:
        faults = [product.fault for product in CATALOGUE.products(site)]
        assert (sorted(filter(None, faults)), faults.count(None)) == (sorted(Fault), 2)


@pytest.mark.parametrize("site", ["ably", "hwahae"])
async def test_a_site_is_read_as_html_or_json(site: str, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(browser.RENDER, "")
    urls = [url for page in (1, 2) for url in await read_listing(shop.url, site, "test", page=page)]
    assert urls == [shop.url + product.path for product in CATALOGUE.products(site)]
    product = sound(site)
    assert await read_product(shop.url + product.path, "test") == as_scan(shop, product)
    assert await read_listing(shop.url, site, "test", barcode=product.barcode) == [shop.url + product.path]
    assert (await read_product(shop.url + faulty(site, Fault.GONE).path, "test")).is_gone
    for _ in range(3):
        with pytest.raises(SiteFailed, match="answered 500"):
            await read_product(shop.url + faulty(site, Fault.BROKEN).path, "test")
    flaky = faulty(site, Fault.FLAKY)
    with pytest.raises(SiteFailed, match="answered 503"):
        await read_product(shop.url + flaky.path, "test")
    assert await read_product(shop.url + flaky.path, "test") == as_scan(shop, flaky)


def test_products_are_compared_with_those_that_are_stored(stored: str) -> None:
    urls = [f"/ably/{number}" for number in range(1, 6)]
    scans = [
        Scan(urls[0], "ably", price=900, in_stock=True),
        Scan(urls[1], "ably", price=1000, in_stock=False),
        Scan(urls[2], "ably", price=500, in_stock=True),
        Scan(urls[3], "ably", is_gone=True),
        Scan(error="SiteFailed: answered 500"),  # what the engine puts in place of an item that failed
    ]
    findings: list[Finding] = validate_products(urls, scans)
    verdicts = ["price changed", "stock changed", "new", "gone", "not scanned"]
    assert [each.verdict for each in findings] == verdicts
    expected = dict.fromkeys(verdicts, 1)
    assert write_results("run-1", findings) == write_results("run-1", findings) == expected, "safe to repeat"
    assert [each.verdict for each in validate_products(urls[:3], scans[:3])] == ["same"] * 3
    assert write_report("run-2") == "1 gone, 1 new, 1 not scanned, 1 price changed, 1 stock changed"


def test_the_best_offer_is_in_stock(stored: str) -> None:
    dear, cheap = Scan("/a", price=900, in_stock=True), Scan("/b", price=800, in_stock=True)
    sold_out = Scan("/c", price=1)
    assert write_best_offer("880", [dear, sold_out, cheap, Scan(error="500")]) == cheap
    with pytest.raises(LookupError):
        write_best_offer("880", [sold_out])


def test_the_files_of_the_example_agree() -> None:
    document = yaml.safe_load((EXAMPLE / "jobyard.yaml").read_text("utf-8"))
    deployed = yaml.safe_load((ROOT / "deploy/compose/jobyard.yaml").read_text("utf-8"))
    assert document["platforms"] == deployed["platforms"]
    assert tuple(document["platforms"]) == PLATFORMS
    assert {name: document["platforms"][name]["class"] for name in SITES} == SITES
    kinds = declarations_of(app.yard).tasks
    found = load_folder(EXAMPLE / "workflows", kinds=kinds, platforms=PLATFORMS)
    used = {step.kind for workflow in found.values() for step in workflow.all_steps()}
    assert used == set(kinds), "every handler is used"
    scripts = {path.stem.removeprefix("submit-") for path in (EXAMPLE / "scripts").glob("submit-*.sh")}
    assert scripts == set(PLATFORMS)


@pytest.mark.parametrize("name", ["scanner.app", "scanner.sites"])
def test_doctests(name: str) -> None:
    tried = doctest.testmod(import_module(name))
    assert (tried.failed, tried.attempted > 0) == (0, True)
