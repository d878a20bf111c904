"""Looking at the store while the demo runs: how many jobs are where, and what has happened."""

from collections import Counter, defaultdict

from windlass.broker.contract import Broker
from windlass.core.event import FROM_START, Event
from windlass.core.state import Move, State
from windlass.core.units import Cursor
from windlass.demo.fleet import Fleet
from windlass.demo.jobs import MAILS
from windlass.demo.look import Look


class Watch:
    """Asks the store and the workers what has changed."""

    def __init__(self, broker: Broker, fleet: Fleet | None = None) -> None:
        self._broker = broker
        self._cursor: Cursor = FROM_START
        self._tenants: Counter[str] = Counter()
        self.fleet = fleet

    async def look(self, seconds: float) -> tuple[Look, list[str]]:
        """How things are, and what has happened since the last time."""
        news = await self._events()
        if self.fleet is not None:
            news = [*(f"supervisor: {said}" for said in self.fleet.news()), *news]
        kinds: defaultdict[str, dict[State, int]] = defaultdict(lambda: dict.fromkeys(State, 0))
        states: dict[State, int] = dict.fromkeys(State, 0)
        for row in (await self._broker.counts()).rows:
            kinds[row.task][row.state] += row.count
            states[row.state] += row.count
        tenants = {tenant: self._tenants[tenant] for tenant in MAILS}
        return Look(seconds=seconds, states=states, kinds=dict(kinds), tenants=tenants), news

    async def _events(self) -> list[str]:
        """The log of events, page by page; the like of one look are told together."""
        told: Counter[str] = Counter()
        while True:
            page = await self._broker.events(self._cursor, 1_000, 0)
            self._cursor = page.cursor
            for event in page.items:
                if event.move is Move.DONE and event.task == "mail":
                    self._tenants[event.lane] += 1
                if sentence := _told(event):
                    told[sentence] += 1
            if not page.items:
                break
        return [sentence if count == 1 else f"{sentence} ({count} jobs)" for sentence, count in told.items()]


def _told(event: Event) -> str:
    """An event that a reader should see, in words; nothing for the many that went well."""
    task = event.task
    if event.after is State.DEAD:
        return f"{task}: dead letter, {event.reason}"
    if event.move is Move.RETRY:
        return f"{task}: attempt {event.attempt} failed, it will be tried again"
    if event.move in (Move.CRASH, Move.LOST):
        return f"{task}: its worker was killed in attempt {event.attempt}, it goes back"
    if event.move is Move.DONE and task in ("killer", "blocking"):
        return f"{task}: done in attempt {event.attempt}"
    return ""
