"""`python -m scanner.shop`: serve the shop until standard input ends."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading

from scanner.shop.catalogue import Catalogue
from scanner.shop.server import Shop


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scanner.shop", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pages", type=int, default=3, help="pages of the listing of each site")
    parser.add_argument("--per-page", type=int, default=5, help="products on each page")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Shop(Catalogue(given.seed, given.pages, given.per_page), given.port) as shop:
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        print(shop.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()
        shop.shutdown()


if __name__ == "__main__":
    main()
