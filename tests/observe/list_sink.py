"""A sink of another package: lists in memory. Its turns and places are kept by the store."""

from collections import defaultdict

import msgspec

from windlass.core.units import MINUTE, SECOND
from windlass.observe.history.rollup import Figures, by_minute
from windlass.observe.history.sink import By, Failed, Group, Minute, Trail, Used


async def opened(url, keep, places):
    assert url == "list://here"
    assert keep == 90 * 86_400 * SECOND
    return ListSink(places)


def added_up(attempts):
    figures = Figures()
    for attempt in attempts:
        figures.add(attempt)
    return figures


class ListSink:
    def __init__(self, places):
        self.places = places
        self.rows = defaultdict(dict)

    async def turn(self, source, reader, now, until):
        return await self.places.turn(source, reader, now, until)

    async def write(self, source, reader, batch, cursor):
        rows = self.rows[source]
        for attempt in batch.attempts:
            rows["attempt", attempt.job, attempt.fence] = attempt
        for each in batch.enqueued:
            rows["enqueue", each.job] = each
        for each in batch.slots:
            rows["slots", each.at, each.host] = each
        for each in batch.workers:
            known = rows.get(("worker", each.worker_id), each)
            rows["worker", each.worker_id] = max(known, each, key=lambda worker: worker.seen_at)
        await self.places.go_on(source, reader, cursor)

    async def forget(self, source, before):
        age = {"worker": "seen_at"}
        for key, row in list(self.rows[source].items()):
            if getattr(row, age.get(key[0], "at")) < before:
                del self.rows[source][key]

    async def blank(self, source, tag):
        empty = {"attempt": {"error": ""}, "enqueue": {"key": None}}
        count = 0
        for key, row in list(self.rows[source].items()):
            if tag in getattr(row, "tags", ()):
                self.rows[source][key] = blank = msgspec.structs.replace(row, **empty[key[0]])
                count += blank != row
        return count

    def all(self, source, kind):
        return [row for key, row in self.rows[source].items() if key[0] == kind]

    def chosen(self, source, window):
        return [
            each
            for each in self.all(source, "attempt")
            if window.since <= each.at < window.until
            and window.task in (None, each.task)
            and window.queue in (None, each.queue)
        ]

    async def minutes(self, source, window, step=MINUTE):
        return [Minute(*key, figures) for key, figures in by_minute(self.chosen(source, window)).items()]

    async def used(self, source, window):
        found = defaultdict(list)
        for each in self.all(source, "slots"):
            if window.since <= each.at < window.until:
                found[each.at // MINUTE * MINUTE, each.host].append(each)
        return [
            Used(at, host, len(some), sum(one.slots for one in some), sum(one.leases for one in some))
            for (at, host), some in sorted(found.items())
        ]

    async def groups(self, source, window, by):
        column = {By.LANE: "lane", By.WORKER: "worker_id", By.ERROR: "fingerprint"}[by]
        found = defaultdict(list)
        for each in self.chosen(source, window):
            if by is not By.ERROR or each.fingerprint:
                found[getattr(each, column)].append(each)
        groups = [Group(name, added_up(some)) for name, some in found.items()]
        return sorted(groups, key=lambda group: (-group.figures.attempts, group.name))

    async def failed(self, source, window):
        last = {}
        for each in sorted(self.chosen(source, window), key=lambda each: (each.at, each.fence)):
            if each.fingerprint:
                said = (each.fingerprint, each.error_type, each.error, each.task)
                last[each.fingerprint] = Failed(*said, each.job, each.fence, each.at)
        return list(last.values())

    async def workers(self, source, window):
        return [
            each
            for each in self.all(source, "worker")
            if each.opened_at < window.until and each.seen_at >= window.since
        ]

    async def trail(self, source, job):
        attempts = [each for each in self.all(source, "attempt") if each.job == job]
        enqueued = self.rows[source].get(("enqueue", job))
        return Trail(enqueued, sorted(attempts, key=lambda each: each.fence))

    async def close(self):
        """Nothing is open."""
