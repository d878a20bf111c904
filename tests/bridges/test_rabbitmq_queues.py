"""Queues of RabbitMQ are what a source must be, on a real server."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.bridges.rabbits import QUORUM, RabbitQueues

from windlass.conformance.bridges.ground import QueueGround
from windlass.conformance.bridges.queues import *  # noqa: F403
from windlass.verify.brokers.rabbitmq import Rabbit


@pytest.fixture(params=["classic", "quorum"])
def queues(request: pytest.FixtureRequest, rabbit: Rabbit) -> Iterator[QueueGround]:
    with asyncio.Runner() as runner:
        ground = RabbitQueues(runner, rabbit, QUORUM if request.param == "quorum" else {})
        yield ground
        runner.run(ground.close())
