"""Exchanges of RabbitMQ are what a sink must be, on a real server."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.bridges.rabbits import RabbitSinks

from windlass.conformance.bridges.ground import SinkGround
from windlass.conformance.bridges.sinks import *  # noqa: F403
from windlass.verify.brokers.rabbitmq import Rabbit


@pytest.fixture
def sinks(rabbit: Rabbit) -> Iterator[SinkGround]:
    with asyncio.Runner() as runner:
        ground = RabbitSinks(runner, rabbit)
        yield ground
        runner.run(ground.close())
