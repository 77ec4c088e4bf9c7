"""RQ on Redis, by the worker that does not fork for each job."""

from __future__ import annotations

from redis import Redis
from rq import Queue, SimpleWorker

from bench.peers import by_name, by_threads
from bench.peers.common import Order, Tally

CHUNK = 1000


class Rq(by_threads.Peer):
    def __init__(self, order: Order, tally: Tally) -> None:
        super().__init__(order, tally)
        by_name.report_to(tally)
        self.queue = Queue("bench", connection=Redis.from_url(order.url))
        self.lifetime = -1 if order.setting("keep", 0) else 0

    def enqueue(self, sent: int | None) -> None:
        if sent is None:
            self.queue.enqueue(by_name.noop, result_ttl=self.lifetime)
        else:
            self.queue.enqueue(by_name.stamp, sent, result_ttl=self.lifetime)

    def insert(self, jobs: int) -> None:
        for start in range(0, jobs, CHUNK):
            size = min(CHUNK, jobs - start)
            data = Queue.prepare_data(by_name.noop, result_ttl=self.lifetime)
            self.queue.enqueue_many([data for _ in range(size)])

    def work(self) -> None:
        SimpleWorker([self.queue], connection=self.queue.connection).work(logging_level="ERROR")

    def unsettled(self) -> int:
        return int(self.queue.count) + int(self.queue.started_job_registry.count)


if __name__ == "__main__":
    by_threads.main(Rq)
