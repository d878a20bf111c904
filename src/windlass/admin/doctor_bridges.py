"""The state of health of intakes and relays: what their workers have reported, and what their message brokers
say when they are asked from here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import cast

from windlass.admin.advice import length
from windlass.admin.findings import Finding, Level
from windlass.admin.intakes import Intakes, IntakeShown
from windlass.admin.places import Opens, answering, closing
from windlass.admin.relays import Relays, RelayShown
from windlass.bridges.addresses import Address, open_sink, open_source
from windlass.bridges.declared import Intake, Relay
from windlass.bridges.sink import Sink
from windlass.bridges.source import LogSource, is_queue
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.units import MINUTE, SECOND
from windlass.errors import BridgeError, InvalidOption

BEHIND = MINUTE / SECOND
"""Seconds that a relay may be behind before it is worth a word."""


async def examine_bridges(
    app: Windlass,
    broker: Broker,
    *,
    opens: Opens = open_source,
    sinks: Callable[[Address], Awaitable[Sink]] = open_sink,
) -> AsyncIterator[Finding]:
    """Look at every intake and relay. Those of this app are opened, all at once."""
    intakes, relays = await Intakes(app, broker).all(), await Relays(app, broker).all()
    asked = [_ask_source(each, opens) for each in app.intakes.values()]
    asked += [_ask_sink(each, sinks) for each in app.relays.values()]
    answers = await asyncio.gather(*asked)
    told: set[str] = set()
    for finding in (*_intakes(intakes), *_relays(relays), *(each for some in answers for each in some)):
        if finding.text not in told:  # workers have reported the same warnings
            told.add(finding.text)
            yield finding


# --- what workers have reported -----------------------------------------------------------------------------


def _intakes(intakes: Sequence[IntakeShown]) -> Iterator[Finding]:
    for each in intakes:
        name = f'intake "{each.name}"'
        if each.state == "gone":
            left = sum(partition.offset is not None for partition in each.partitions)
            many = f"{left:,} offset{' is' if left == 1 else 's are'} left"
            text = f"{name}: no code declares it any more, and {many}"
            yield Finding("intakes", Level.NOTE, text, f"windlass intakes APP forget {each.name}")
            continue
        for partition in each.partitions:
            if partition.stopped:
                text = f"{name}, partition {partition.partition} has stopped: {partition.error}"
                fix = f"windlass intakes APP move {each.name} {partition.partition} begin, end or OFFSET"
                yield Finding("intakes", Level.PROBLEM, text, fix)
            elif partition.error and partition.is_read:
                yield Finding("intakes", Level.WARNING, f"{name}: {partition.error}")
        if each.paused:
            yield Finding(
                "intakes", Level.NOTE, f"{name} is paused", f"windlass intakes APP resume {each.name}"
            )
        if not each.runners:
            fix = "windlass worker APP, or windlass intake APP"
            yield Finding("intakes", Level.WARNING, f"{name}: no process runs it", fix)
        for warning in each.warnings:
            yield Finding("intakes", Level.WARNING, f"{name}: {warning}")


def _relays(relays: Sequence[RelayShown]) -> Iterator[Finding]:
    for each in relays:
        name = f'relay "{each.name}"'
        if each.state == "gone":
            continue
        if each.state == "unread":
            yield Finding("relays", Level.WARNING, f"{name}: no process runs it", "windlass worker APP")
        if each.paused:
            yield Finding(
                "relays", Level.NOTE, f"{name} is paused", f"windlass relays APP resume {each.name}"
            )
        if each.error:
            yield Finding("relays", Level.WARNING, f"{name}: {each.error}")
        if each.gaps:
            often = "once" if each.gaps == 1 else f"{each.gaps:,} times"
            text = f"{name}: events were dropped {often} before it had read them"
            yield Finding("relays", Level.WARNING, text, "raise events_kept, and keep the relay running")
        if each.refused:
            text = f"{name}: its message broker has refused {each.refused:,} messages, the last of job "
            yield Finding("relays", Level.WARNING, f"{text}{each.refused_job}", "they were left out")
        if (each.behind or 0) > BEHIND:
            text = f"{name} is {length(int((each.behind or 0) * SECOND))} behind"
            yield Finding("relays", Level.WARNING, text)
        for warning in each.warnings:
            yield Finding("relays", Level.WARNING, f"{name}: {warning}")


# --- what message brokers say -------------------------------------------------------------------------------


async def _ask_source(intake: Intake, opens: Opens) -> list[Finding]:
    name = f'intake "{intake.settings.name}"'
    found: list[Finding] = []
    try:
        async with answering(intake.address), closing(await opens(intake.address)) as source:
            text = f"{name}: {intake.address.shown} answers"
            if not is_queue(source):
                count = len(await cast("LogSource", source).partitions())
                text += f", {count:,} partition{'' if count == 1 else 's'}"
            elif not source.names_messages:
                found.append(Finding("intakes", Level.WARNING, f"{name}: {_NO_IDS}", _GIVE_IDS))
            found.insert(0, Finding("intakes", Level.OK, text))
            warnings = await source.warnings()
    except (BridgeError, InvalidOption) as error:
        return [Finding("intakes", Level.WARNING, f"{name}: {error}", _FROM_HERE)]
    return found + [Finding("intakes", Level.WARNING, f"{name}: {warning}") for warning in warnings]


async def _ask_sink(relay: Relay, sinks: Callable[[Address], Awaitable[Sink]]) -> list[Finding]:
    name = f'relay "{relay.settings.name}"'
    try:
        async with answering(relay.address), closing(await sinks(relay.address)) as sink:
            warnings = await sink.warnings()
    except (BridgeError, InvalidOption) as error:
        return [Finding("relays", Level.WARNING, f"{name}: {error}", _FROM_HERE)]
    answers = Finding("relays", Level.OK, f"{name}: {relay.address.shown} answers")
    return [answers, *(Finding("relays", Level.WARNING, f"{name}: {warning}") for warning in warnings)]


_FROM_HERE = "it was asked from here, with this program's address and login"
_NO_IDS = "messages have no id, so one that comes again makes a second job"
_GIVE_IDS = "let producers give each message an id, or name a key= for the jobs"
