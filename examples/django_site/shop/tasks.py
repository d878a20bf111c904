"""What the shop does in the background: a task of Windlass, and one of Django's own kind."""

from shop.models import Order
from windlass import RetryPolicy
from windlass.django import app

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@app.task(queue="mail", retry=RetryPolicy(max_attempts=5, base=30))
def send_receipt(order_id: int) -> str:
    """Send the receipt of an order."""
    order = Order.objects.get(pk=order_id)
    Order.objects.filter(pk=order_id).update(receipt_sent=True)
    return f"receipt for {order.email}"


@task()
def pack(order_id: int) -> int:
    """Pack an order."""
    return Order.objects.filter(pk=order_id).update(packed=True)
