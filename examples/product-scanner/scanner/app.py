"""The handlers that the steps of the workflows run. The workflows themselves are in workflows/*.json."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass

from jobyard import Jobyard
from scanner import database
from scanner.fetching import Scan, read_listing, read_product
from scanner.sites import SITES, site_of

SHOP = "SCANNER_SHOP"  # the address of the shop
yard = Jobyard()


def visitor(run_id: str) -> str:
    """The User-Agent: the shop can tell which run has asked."""
    return f"product-scanner/1.0 ({run_id})"


# Extract


@yard.job
async def extract_urls(run_id: str, site: str, page: int = 1) -> list[str]:
    """The addresses of the products on one page of a site's listing."""
    return await read_listing(os.environ[SHOP], site, visitor(run_id), page=page)


@yard.job
async def find_offers(run_id: str, barcode: str) -> list[str]:
    """The addresses of a product on all sites that sell it."""
    listings = [read_listing(os.environ[SHOP], site, visitor(run_id), barcode=barcode) for site in SITES]
    return [url for found in await asyncio.gather(*listings) for url in found]


@yard.job
def save_urls(run_id: str, sites: list[list[str]]) -> int:
    urls = [url for of_site in sites for url in of_site]
    with database.transaction() as connection:
        rows = [{"url": url, "site": site_of(url), "run_id": run_id} for url in urls]
        connection.executemany(database.SAVE_URL, rows)
    return len(urls)


# Scan


@yard.job
async def scan_product(run_id: str, url: str) -> Scan:
    """Read one product: in the browser, or from the API of its site."""
    return await read_product(url, visitor(run_id))


# Validate


@dataclass
class Finding:
    """A scanned product, compared with the stored one."""

    url: str
    verdict: str  # new, same, price changed, stock changed, gone, not scanned
    detail: str = ""
    scan: Scan | None = None


@yard.job
def validate_products(urls: list[str], scans: list[Scan]) -> list[Finding]:
    with database.transaction() as connection:
        rows = connection.execute(database.STORED, [json.dumps(urls)])
        stored = {url: (price, in_stock) for url, price, in_stock in rows}
    return [compare(url, scan, stored.get(url)) for url, scan in zip(urls, scans, strict=True)]


def compare(url: str, scan: Scan, stored: tuple[int, int] | None) -> Finding:
    """
    >>> compare("/1", Scan(price=900, in_stock=True), (1000, 1)).detail
    '1,000 → 900 won'
    """
    if scan.error is not None:
        return Finding(url, "not scanned", scan.error)
    if scan.is_gone:
        return Finding(url, "gone")
    if stored is None:
        return Finding(url, "new", scan=scan)
    price, in_stock = stored
    if scan.price != price:
        return Finding(url, "price changed", f"{price:,} → {scan.price:,} won", scan)
    if scan.in_stock != bool(in_stock):
        return Finding(url, "stock changed", "in stock again" if scan.in_stock else "sold out", scan)
    return Finding(url, "same", scan=scan)


# Write


@yard.job
def write_results(run_id: str, findings: list[Finding]) -> dict[str, int]:
    """Store what was found, and the products as they are now, in one transaction."""
    with database.transaction() as connection:
        for each in findings:
            row = {"run_id": run_id, "url": each.url, "verdict": each.verdict, "detail": each.detail}
            connection.execute(database.SAVE_RESULT, row)
            if each.scan is not None:
                connection.execute(database.SAVE_PRODUCT, asdict(each.scan))
            elif each.verdict == "gone":
                connection.execute(database.FORGET_PRODUCT, {"url": each.url})
    return dict(Counter(each.verdict for each in findings))


@yard.job
def write_best_offer(barcode: str, scans: list[Scan]) -> Scan:
    offers = [scan for scan in scans if scan.error is None and not scan.is_gone and scan.in_stock]
    if not offers:
        raise LookupError(f"No site has {barcode} in stock.")
    best = min(offers, key=lambda scan: scan.price)
    with database.transaction() as connection:
        connection.execute(database.SAVE_OFFER, {"barcode": barcode, "url": best.url, "price": best.price})
    return best


@yard.job
def write_report(run_id: str) -> str:
    with database.transaction() as connection:
        verdicts = connection.execute(database.VERDICTS).fetchall()
        text = ", ".join(f"{count} {verdict}" for verdict, count in verdicts) or "nothing yet"
        connection.execute(database.SAVE_REPORT, {"run_id": run_id, "text": text})
    return text


@yard.job
def record_failure(run_id: str, step: str, error: str) -> None:
    """The last step of a run that has failed."""
    with database.transaction() as connection:
        connection.execute(database.SAVE_FAILURE, {"run_id": run_id, "step": step, "error": error})
