"""What an order is, in requests, in jobs and in answers."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

OrderId = Annotated[int, Field(gt=0)]


class Line(BaseModel):
    sku: Annotated[str, StringConstraints(pattern=r"^[a-z]+$")]
    count: int = Field(gt=0, le=100)
    price: Decimal = Field(gt=0, decimal_places=2)


class Order(BaseModel):
    customer: str = Field(min_length=1, max_length=80)
    lines: list[Line] = Field(min_length=1)

    @property
    def total(self) -> Decimal:
        return sum((line.count * line.price for line in self.lines), Decimal(0))


class Receipt(BaseModel):
    order_id: OrderId
    tenant: str
    total: Decimal
