"""What was sold."""

from django.db import models


class Order(models.Model):
    """One book for one customer."""

    book = models.CharField(max_length=100)
    email = models.EmailField()
    receipt_sent = models.BooleanField(default=False)
    packed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.book} for {self.email}"
