"""What the shop sells: the same products, prices and faults for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from scanner.sites import SITES

BRANDS = ("Haneul", "Dalbit", "Sora", "Miru", "Areum", "Onda")
GOODS = ("Rice Toner", "Cica Cream", "Sun Stick", "Linen Shirt", "Wool Coat", "Denim Skirt", "Green Tea", "Kimchi Jar")
FIRST_NUMBER = 101


class Fault(StrEnum):
    """How a product page misbehaves."""

    SLOW = "slow"  # answers late
    FLAKY = "flaky"  # its first response is 503
    BROKEN = "broken"  # every response is 500
    GONE = "gone"  # listed, but 404: a link that is out of date


@dataclass(frozen=True)
class Product:
    site: str
    code: str  # of the site: "ab-101"
    barcode: str  # the same on all sites
    name: str
    price: int  # won
    in_stock: bool
    fault: Fault | None = None

    @property
    def path(self) -> str:
        return f"/{self.site}/products/{self.code}"


@dataclass(frozen=True)
class Catalogue:
    """The products of every site: pages of listings, with a slow, a flaky and two failing products on each site."""

    seed: int = 1
    pages: int = 3
    per_page: int = 5

    def page(self, site: str, number: int) -> list[Product]:
        """One page of a listing, from 1."""
        return self.products(site)[(number - 1) * self.per_page : number * self.per_page]

    def products(self, site: str) -> list[Product]:
        made = [self._product(site, number) for number in range(self.pages * self.per_page)]
        faulty = random.Random(f"{self.seed}/{site}/faults").sample(range(len(made)), min(len(Fault), len(made)))
        for place, fault in zip(faulty, Fault, strict=False):
            made[place] = replace(made[place], fault=fault)
        return made

    def _product(self, site: str, number: int) -> Product:
        goods = random.Random(f"{self.seed}/{number}")  # the same on every site
        name = f"{goods.choice(BRANDS)} {goods.choice(GOODS)}"
        usual_price = goods.randrange(50, 600) * 100
        here = random.Random(f"{self.seed}/{site}/{number}")
        return Product(
            site=site,
            code=f"{site[:2]}-{FIRST_NUMBER + number}",
            barcode=f"880{self.seed % 1000:03}{FIRST_NUMBER + number:07}",
            name=name,
            price=int(usual_price * here.uniform(0.85, 1.15)) // 100 * 100,
            in_stock=here.random() > 0.15,
        )

    def yesterday(self, site: str) -> Iterator[Product]:
        """What an earlier scan has stored: some products had another price or stock, some were not there yet."""
        for product in self.products(site):
            before = random.Random(f"{self.seed}/{product.path}/yesterday").random()
            if before < 0.2:
                yield replace(product, price=product.price + 1000)
            elif before < 0.3:
                yield replace(product, in_stock=not product.in_stock)
            elif before < 0.9:
                yield product

    def all_products(self) -> list[Product]:
        return [product for site in SITES for product in self.products(site)]
