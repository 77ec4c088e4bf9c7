"""The jobs of the shop: plain functions that use the models."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.core.signals import request_started
from django.db import close_old_connections

from jobyard import BlockingContext, Jobyard
from shop.models import Order

yard = Jobyard(settings.JOBYARD_STORE)
wait = yard.blocking()  # opens at its first call, in each process that uses it
# With SQLite: before the transaction of a request holds the lock of the file.
request_started.connect(lambda **_: wait.open(), weak=False)

P = ParamSpec("P")
R = TypeVar("R")


def with_database(function: Callable[P, R]) -> Callable[P, R]:
    """Do what Django does around a request: do not keep a connection that the server has closed."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return run


@yard.job(queue="mail", max_attempts=5, timeout=60)
@with_database
def send_receipt(ctx: BlockingContext, order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    ctx.progress(50, f"writing to {order.email}")
    Order.objects.filter(pk=order_id).update(is_sent=True)
    return f"sent to {order.email}"
