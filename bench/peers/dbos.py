"""DBOS: durable steps in one process, on PostgreSQL or SQLite."""

from __future__ import annotations

import logging
import time

from dbos import DBOS, DBOSConfig

from bench.peers.common import Order, answer

WARM_UP = 30


def main() -> None:
    order = Order.read()
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": order.url,
        "run_admin_server": False,
        "log_level": "CRITICAL",
    }
    DBOS(config=config)
    logging.disable(logging.CRITICAL)

    @DBOS.step()
    def nothing() -> None:
        pass

    @DBOS.workflow()
    def steps(count: int) -> int:
        for _ in range(count):
            nothing()
        return count

    DBOS.launch()

    def work(count: int, each: int) -> None:
        handles = [DBOS.start_workflow(steps, each) for _ in range(count // each)]
        assert all(handle.get_result() == each for handle in handles)

    each = order.setting("each", order.jobs)
    work(WARM_UP, min(each, WARM_UP))
    cpu, started = time.process_time(), time.perf_counter()
    work(order.jobs, each)
    elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    answer({"jobs_per_second": order.jobs / elapsed, "own_cpu_us": 1e6 * used / order.jobs})


if __name__ == "__main__":
    main()
