"""The jobs of a run: every platform gets some, with different priorities."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from scanner.shop.catalogue import Catalogue, Fault
from scanner.sites import SITES

REPORTS = 2


class Submission(NamedTuple):
    """A run of a workflow."""

    workflow_id: str
    params: dict[str, Any]
    priority: int = 0


def mixed_load(catalogue: Catalogue, shop: str) -> list[Submission]:
    """A scan of every page of every site, work on several sites, and reports; the seed decides their order."""
    submissions = list(_submissions(catalogue, shop))
    random.Random(catalogue.seed).shuffle(submissions)
    return submissions


def _submissions(catalogue: Catalogue, shop: str) -> Iterator[Submission]:
    for site in SITES:
        for page in range(1, catalogue.pages + 1):
            # The last page is urgent: it starts before those that wait.
            yield Submission("scan_platform", {"platform": site, "page": page}, 5 if page == catalogue.pages else 0)
    for page in range(1, catalogue.pages + 1):
        yield Submission("url_extraction", {"page": page})
    for product in catalogue.products("zigzag")[: catalogue.pages]:
        yield Submission("multi_platform", {"barcode": product.barcode})
    for product in catalogue.products("ably"):
        # One that works, and one whose page is broken: that run fails, and records why.
        if product.fault in (Fault.FLAKY, Fault.BROKEN):
            yield Submission("single_product", {"url": shop + product.path})
    for _ in range(REPORTS):
        yield Submission("price_report", {})
