"""The verbs of intakes as calls of scripts; as those of `verbs.py`."""

from typing import Any

from windlass.broker.redis import decoding, encoding
from windlass.broker.redis.records import pack, unpack
from windlass.broker.redis.verbs import ScriptCall, page_size, refused_full
from windlass.core.take import Offset, Source, Take, Taken, TakeStatus, jobs_of, taken


def take(wish: Take) -> ScriptCall[Taken]:
    jobs, source = jobs_of(wish), wish.source

    def read(answer: Any) -> Taken:
        status = TakeStatus(answer[0].decode())
        if status in (TakeStatus.RACED, TakeStatus.FOREIGN):
            return Taken(status=status, offset=_offset(source.name, answer[1]) if answer[1] else None)
        return taken(wish, decoding.receipts(jobs, answer[2]), answer[1])

    expect, then = (False if at is None else at for at in (wish.expect, wish.then))
    rows, ids, bodies = encoding.calls([jobs], dead=wish.dead)
    arguments = (pack(rows), ids, bodies, pack([source.name, source.identity, expect, then]))
    return ScriptCall("take", arguments, read, lambda: taken(wish, refused_full(jobs), 0))


def _offset(name: str, record: bytes) -> Offset:
    identity, at, moved_at = unpack(record)
    return Offset(Source(name, identity), at, moved_at)


def offsets(after: str, limit: int) -> ScriptCall[tuple[Offset, ...]]:
    def read(answer: Any) -> tuple[Offset, ...]:
        return tuple(_offset(answer[at].decode(), answer[at + 1]) for at in range(0, len(answer), 2))

    return ScriptCall("offsets", (pack([after, page_size(limit)]),), read)
