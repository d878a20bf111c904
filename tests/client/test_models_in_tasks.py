"""Models and named types go through a task: enqueue, run, result, steps, errors."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from windlass import Windlass, current
from windlass.admin.enqueueing import Accepted, Enqueueing
from windlass.core.state import State
from windlass.errors import InvalidOption, InvalidPayload, JobFailed
from windlass.testing import testing


class Line(BaseModel):
    sku: str
    price: Decimal = Field(gt=0)


class Order(BaseModel):
    number: int
    lines: list[Line] = []
    card: SecretStr | None = None


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def cents_of(money: Money) -> int:
    return money.cents


def test_a_task_takes_and_returns_models() -> None:
    app = Windlass("memory://")

    @app.task
    def priced(order: Order, folder: Path | None = None) -> Line:
        assert isinstance(order.lines[0], Line)
        assert isinstance(folder, Path)
        return order.lines[0]

    order = Order(number=1, lines=[Line(sku="a", price=Decimal("1.5"))])
    with testing(app) as t:
        job = priced.enqueue(order, Path("/srv"))
        t.drain()
        assert job.result() == order.lines[0]
        with pytest.raises(InvalidPayload, match=r'priced\(\): argument "order"\["number"\]'):
            priced.enqueue(Order.model_construct(number=None))


def test_named_types_are_known_in_all_namespaces_and_in_steps() -> None:
    app = Windlass("memory://")
    app.type(Money, encode=cents_of, decode=Money, schema={"type": "integer"})
    app.queue("bank", namespace="bank")

    def earn() -> Money:
        return Money(5)

    @app.task(queue="bank")
    def add(to: Money) -> Money:
        return Money(to.cents + current.step("earn", earn).cents)

    assert add.signature.schema()["properties"]["to"] == {"type": "integer"}
    with testing(app) as t:
        job = add.enqueue(Money(2))
        t.drain()
        assert job.result().cents == 7


def test_a_type_is_named_before_the_tasks_that_use_it() -> None:
    app = Windlass("memory://")
    with pytest.raises(InvalidOption, match=r'pay\(\): parameter "money": Money cannot .* app\.type\(\)'):

        @app.task
        def pay(money: Money) -> None: ...


def test_by_name_a_call_is_validated_too(app: Windlass) -> None:
    @app.task
    def ship(order: Order) -> None: ...

    async def by_name(arguments: bytes) -> Accepted:
        return await Enqueueing(app, await app.broker()).call("ship", arguments, {})

    accepted = app.run(by_name(b'{"order": {"number": 1, "lines": [{"sku": "a", "price": "2"}]}}'))
    assert accepted.created
    with pytest.raises(InvalidPayload, match=r'argument "order"\["lines"\]\[0\]\["price"\]: input should be'):
        app.run(by_name(b'{"order": {"number": 1, "lines": [{"sku": "a", "price": "-2"}]}}'))
    with pytest.raises(InvalidPayload, match=r'argument "order"\["number"\]: field required') as refused:
        app.run(by_name(b'{"order": {"card": "4242-4242"}}'))
    assert "4242" not in str(refused.value)


def test_a_model_that_has_changed_holds_the_job_with_the_reason() -> None:
    app = Windlass("memory://")

    class Renewed(BaseModel):
        number: int
        customer: int

    @app.task
    def ship(order: Order) -> None: ...

    with testing(app) as t:
        job = ship.enqueue(Order(number=1, card=SecretStr("4242-4242")))
        ship.signature = _signature_of(Renewed)  # another version of the code
        t.drain(raises=False)
        assert job.state() is State.SCHEDULED
        assert 'argument "order"["customer"]: field required' in t.explain(job)


def _signature_of(model: Any) -> Any:
    def ship(order): ...

    ship.__annotations__ = {"order": model, "return": None}
    return Windlass("memory://").task(ship).signature


def test_errors_and_lines_of_a_run_do_not_show_secrets_of_models() -> None:
    app = Windlass("memory://")

    @app.task
    def pay(order: Order) -> None:
        assert order.card is not None
        current.log(f"card {order.card.get_secret_value()}")
        raise ValueError(f"refused: {order.card.get_secret_value()}")

    with testing(app) as t:
        job = pay.using(max_attempts=1).enqueue(Order(number=1, card=SecretStr("4242-4242")))
        t.drain(raises=False)
        assert job.logs() == ("card [secret]",)
        with pytest.raises(JobFailed, match=r"refused: \[secret\]"):
            job.result(timeout=0)


def test_a_result_that_does_not_fit_says_where() -> None:
    app = Windlass("memory://")

    @app.task
    def make() -> Order:
        return Order.model_construct(number=1, lines=[Line.model_construct(sku="a", price=Decimal(0))])

    with testing(app) as t:
        job = make.enqueue()
        t.drain(raises=False)
        with pytest.raises(
            JobFailed, match=r'result\["lines"\]\[0\]\["price"\]: input should be greater than 0'
        ):
            job.result(timeout=0)
