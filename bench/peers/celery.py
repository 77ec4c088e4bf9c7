"""Celery on Redis, without results, by one process."""

from __future__ import annotations

from celery import Celery

from bench.peers import by_threads
from bench.peers.common import Order, Tally

POOLS = ("solo", "threads")


class CeleryPeer(by_threads.Peer):
    def __init__(self, order: Order, tally: Tally) -> None:
        super().__init__(order, tally)
        self.app = Celery("bench", broker=order.url)
        self.app.conf.update(
            task_ignore_result=True,
            task_acks_late=bool(order.setting("late", 1)),
            worker_prefetch_multiplier=order.setting("prefetch", 100),
            worker_send_task_events=False,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
            broker_connection_retry_on_startup=True,
        )

        @self.app.task(name="noop")
        def noop() -> None:
            tally.ran()

        @self.app.task(name="stamp")
        def stamp(sent: int) -> None:
            tally.stamped(sent)

        self.noop, self.stamp = noop, stamp

    def enqueue(self, sent: int | None) -> None:
        if sent is None:
            self.noop.delay()
        else:
            self.stamp.delay(sent)

    def work(self) -> None:
        self.app.Worker(
            pool=POOLS[self.order.setting("pool", 0)],
            concurrency=self.order.setting("concurrency", 4),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            loglevel="CRITICAL",
            quiet=True,
        ).start()

    def unsettled(self) -> int:
        with self.app.connection_for_read() as connection:
            client = connection.default_channel.client
            return int(client.hlen("unacked")) + int(client.llen("celery"))


if __name__ == "__main__":
    by_threads.main(CeleryPeer)
