"""The pages of the shop."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from shop.models import Order
from shop.tasks import pack, send_receipt


def buy(request: HttpRequest, book: str) -> JsonResponse:
    """Sell a book. Both jobs are sent when the transaction commits, and not at all if it does not."""
    with transaction.atomic():
        order = Order.objects.create(book=book, email=request.GET["email"])
        receipt = send_receipt.enqueue(order.pk)
        packing = pack.enqueue(order.pk)
        if book == "sold-out":
            transaction.set_rollback(True)
    return JsonResponse({"receipt": receipt.id, "packing": packing.id})
