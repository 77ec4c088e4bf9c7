"""The HTML of the shop. Prices are filled in by a script, as in shops that need a browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from scanner.shop.catalogue import Product

STYLE = "body{font:16px sans-serif;max-width:40em;margin:2em auto} li{margin:.4em 0} #price{font-size:1.5em}"
# The price and the stock appear a moment after the page, as if they were requested.
SCRIPT = """
const product = JSON.parse(document.getElementById("product").textContent);
setTimeout(() => {
  document.getElementById("price").textContent = product.offers.price + " won";
  document.getElementById("stock").textContent = product.offers.availability;
  document.body.dataset.ready = "yes";
}, 30);
"""


def listing(site: str, products: Sequence[Product], number: int, pages: int) -> str:
    items = "".join(f'<li><a class="product" href="{each.path}">{escape(each.name)}</a></li>' for each in products)
    following = f'<a class="next" href="/{site}/?page={number + 1}">next page</a>' if number < pages else ""
    return document(f"{site}: page {number} of {pages}", f"<ul>{items}</ul>{following}")


def product_page(product: Product) -> str:
    data = json.dumps(
        {
            "@type": "Product",
            "sku": product.code,
            "gtin13": product.barcode,
            "name": product.name,
            "offers": {"price": product.price, "availability": "in stock" if product.in_stock else "sold out"},
        }
    )
    return document(
        product.name,
        f'<p id="price">…</p><p id="stock"></p><p id="barcode">{product.barcode}</p>'
        f'<script type="application/ld+json" id="product">{data}</script><script>{SCRIPT}</script>',
    )


def document(title: str, body: str = "") -> str:
    title = escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f'<link rel="icon" href="data:,"><body><h1 id="name">{title}</h1>{body}</body></html>'
    )
