"""The handlers that the steps of workflows/scan.json call, without a shop: the products are made up."""

from __future__ import annotations

import asyncio
from typing import Any

from jobyard import Jobyard

yard = Jobyard()  # the store of jobyard.yaml


@yard.job
async def extract_urls(platform: str, limit: int) -> dict[str, list[str]]:
    return {"urls": [f"https://{platform}.example.com/products/{number}" for number in range(limit)]}


@yard.job
async def fetch_prices(platform: str) -> dict[str, int]:
    return {"old": 1000}


@yard.job
async def scan_product(url: str, label: str = "product") -> dict[str, Any]:
    await asyncio.sleep(0.1)
    return {"url": url, "label": label, "price": 1000 + len(url) % 2}


@yard.job
async def validate_products(products: list[dict[str, Any]], prices: dict[str, int]) -> dict[str, Any]:
    changed = [product for product in products if product["price"] != prices["old"]]
    return {"products": products, "changed": len(changed)}


@yard.job
async def store_products(products: list[dict[str, Any]], changed: int) -> dict[str, int]:
    return {"count": len(products)}


@yard.job
async def send_message(text: str) -> None:
    print(text)
