"""dramatiq on Redis, by its own worker and its threads."""

from __future__ import annotations

import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import by_threads
from bench.peers.common import Order, Tally


class Dramatiq(by_threads.Peer):
    def __init__(self, order: Order, tally: Tally) -> None:
        super().__init__(order, tally)
        self.broker = RedisBroker(url=order.url)
        dramatiq.set_broker(self.broker)
        self.noop = dramatiq.actor(actor_name="noop")(tally.ran)
        self.stamp = dramatiq.actor(actor_name="stamp")(tally.stamped)

    def enqueue(self, sent: int | None) -> None:
        if sent is None:
            self.noop.send()
        else:
            self.stamp.send(sent)

    def work(self) -> None:
        dramatiq.Worker(self.broker, worker_threads=self.order.setting("threads", 16)).start()
        threading.Event().wait()

    def unsettled(self) -> int:
        # A message stays here until it is acknowledged.
        return int(self.broker.client.hlen("dramatiq:default.msgs"))


if __name__ == "__main__":
    by_threads.main(Dramatiq)
