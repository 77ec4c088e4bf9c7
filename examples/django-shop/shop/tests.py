"""Tests of the shop: `manage.py test`."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test import TransactionTestCase

from jobyard.testing.blocking import assert_enqueued, drain, inline, isolated, refute_enqueued
from shop.jobs import send_receipt, wait, yard
from shop.models import Order


class OrderTest(TransactionTestCase):
    """Not a TestCase: that would keep each test in one transaction, whose jobs no other connection sees."""

    @contextmanager
    def jobs_of_this_test(self) -> Iterator[None]:
        """The jobs are in the test database, where Django does not remove them after a test."""
        with isolated(yard, url=f"sqlite:///{connection.settings_dict['NAME']}"):
            for job in wait(yard.jobs()):
                wait(yard.delete(job.id))
            yield

    def test_an_order_and_its_job(self) -> None:
        with self.jobs_of_this_test():
            response = self.client.post("/orders", {"email": "ann@example.org"})
            self.assertEqual(response.status_code, 201)
            assert_enqueued(yard, send_receipt, payload={"order_id": response.json()["order"]}, count=1)
            [job] = drain(yard)
            self.assertEqual(job.result, "sent to ann@example.org")
            self.assertTrue(Order.objects.get().is_sent)

    def test_neither_of_them(self) -> None:
        with self.jobs_of_this_test():
            self.assertEqual(self.client.post("/orders", {"email": "ann@example.invalid"}).status_code, 400)
            self.assertEqual(Order.objects.count(), 0)
            refute_enqueued(yard, send_receipt)

    def test_on_commit(self) -> None:
        with inline(yard):  # in memory; the job has run when the response is there
            self.client.post("/orders/on-commit", {"email": "ann@example.org"})
            self.assertTrue(Order.objects.get().is_sent)

    def test_the_job_alone(self) -> None:
        order = Order.objects.create(email="ann@example.org")
        with inline(yard):
            self.assertEqual(wait(wait(send_receipt.enqueue(order.pk)).result()), "sent to ann@example.org")
