"""Claims of workers over HTTP, when payloads are in object storage."""

import pytest
from tests.api.house import House

from windlass.admin import leases as claims
from windlass.admin.leases import Leases, Work
from windlass.config import Config
from windlass.core.codec import is_reference
from windlass.core.job import JobDetail
from windlass.core.lease import Ask
from windlass.core.state import State
from windlass.errors import ValuesUnavailable
from windlass.values.values import Values

ASK = Ask(queues=("mail",), slots=100, limit=100, visibility=60_000_000)


class Counting(Values):
    """Counts the payloads that are asked for; none comes while it is away."""

    def __init__(self, config: Config) -> None:
        assert config.value_settings is not None
        super().__init__(config.value_settings)
        self.is_away = False
        self.asked = 0

    async def payload(self, job: str, payload: bytes, *, blocking: bool = False) -> bytes:
        if not is_reference(payload):
            return payload
        self.asked += 1
        if self.is_away:
            raise ValuesUnavailable("it does not answer")
        return await super().payload(job, payload, blocking=blocking)


class Claimed(House):
    """A house whose large values are in a folder."""

    def __init__(self, values_url: str) -> None:
        super().__init__("memory://", values=values_url)
        self.values = self.app.connection.values = Counting(self.app.config)

    async def claim(self) -> Work:
        return await Leases(self.app, await self.app.broker()).claim(ASK)

    async def jobs(self, ids: list[str]) -> list[JobDetail]:
        return [job for job in await (await self.app.broker()).get(ids) if job is not None]


@pytest.fixture
def claimed(values_url: str) -> Claimed:
    return Claimed(values_url)


def test_object_storage_that_is_away_is_asked_once_for_a_claim(claimed: Claimed) -> None:
    async def story() -> None:
        large = [(await claimed.send.aenqueue("x" * 100_000)).id for _ in range(5)]
        small = [(await claimed.send.aenqueue("ada")).id for _ in range(2)]
        claimed.values.is_away = True
        claimed.values.asked = 0
        work = await claimed.claim()
        assert [handed.lease.job for handed in work.handed] == small
        assert claimed.values.asked == 1
        held = await claimed.jobs(large)
        assert [(job.held is not None and job.held.reason, job.attempt) for job in held] == [
            ("it does not answer", 0)
        ] * 5

    claimed.run(story)


def test_what_is_too_much_for_one_answer_goes_back_uncharged(
    claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MOST_HANDED", 250_000)

    async def story() -> None:
        large = [(await claimed.send.aenqueue("x" * 100_000)).id for _ in range(4)]
        huge = (await claimed.send.aenqueue("x" * 300_000)).id
        taken: list[str] = []
        for wanted in (large[:2], large[2:], [huge]):
            claimed.values.asked = 0
            work = await claimed.claim()
            assert sorted(handed.lease.job for handed in work.handed) == sorted(wanted)
            assert claimed.values.asked == len(wanted), "the others are not read"
            taken += wanted
            left = [job for job in (*large, huge) if job not in taken]
            assert work.more == bool(left)
            assert {(job.state, job.attempt) for job in await claimed.jobs(left)} <= {(State.READY, 0)}

    claimed.run(story)
