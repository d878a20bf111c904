"""How the shop tests what it does in the background."""

from django.test import TestCase, TransactionTestCase

from shop.models import Order
from shop.tasks import send_receipt
from windlass.django.testing import jobs


class BuyTest(TestCase):
    """A customer buys."""

    def test_the_receipt_is_sent_and_the_book_is_packed(self) -> None:
        with jobs() as t:
            self.client.get("/buy/Dune?email=ann@example.com")
            t.assert_enqueued(send_receipt)
            t.drain()
        order = Order.objects.get()
        self.assertTrue(order.receipt_sent)
        self.assertTrue(order.packed)


class SoldOutTest(TransactionTestCase):
    """A customer wants a book that is gone."""

    def test_nothing_is_sent_if_the_order_is_rolled_back(self) -> None:
        with jobs(at_once=False) as t:
            self.client.get("/buy/sold-out?email=ann@example.com")
            t.assert_not_enqueued(send_receipt)
            self.client.get("/buy/Dune?email=ann@example.com")
            t.assert_enqueued(send_receipt)
