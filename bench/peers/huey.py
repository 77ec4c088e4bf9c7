"""huey on Redis, by the loop of its consumer's thread."""

from __future__ import annotations

import threading

from huey import RedisHuey

from bench.peers import by_threads
from bench.peers.common import Order, Tally


class Huey(by_threads.Peer):
    def __init__(self, order: Order, tally: Tally) -> None:
        super().__init__(order, tally)
        # No result store: a no-op has nothing to store, and huey is quicker without it.
        self.huey = RedisHuey("bench", url=order.url, results=False)
        self.noop = self.huey.task(name="noop")(tally.ran)
        self.stamp = self.huey.task(name="stamp")(tally.stamped)

    def enqueue(self, sent: int | None) -> None:
        if sent is None:
            self.noop()
        else:
            self.stamp(sent)

    def work(self) -> None:
        threads = [threading.Thread(target=self._loop) for _ in range(self.order.setting("threads", 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _loop(self) -> None:
        while True:
            task = self.huey.dequeue()
            if task is not None:
                self.huey.execute(task)

    def unsettled(self) -> int:
        return int(self.huey.pending_count())


if __name__ == "__main__":
    by_threads.main(Huey)
