"""Reads that several services share: the store's time, and every document or session, page by page."""

from collections.abc import AsyncIterator

from windlass.broker.contract import Broker
from windlass.core.intake import intakes_run_by
from windlass.core.session import SessionView
from windlass.core.settings import Document, Kind, Subject
from windlass.core.units import Micros

_PAGE = 1_000


async def store_time(broker: Broker) -> Micros:
    """The time by the store's clock."""
    return (await broker.schedules(limit=1)).now


async def documents(broker: Broker, kind: Kind) -> AsyncIterator[Document]:
    """Every document of a kind, ordered by subject."""
    after: Subject | None = None
    while True:
        page = await broker.documents(kind, after, _PAGE)
        for document in page:
            yield document
        if len(page) < _PAGE:
            return
        after = page[-1].subject


async def document_of(broker: Broker, subject: Subject) -> Document | None:
    """One document; None if there is none."""
    async for document in documents(broker, subject.kind):
        if document.subject == subject:
            return document
    return None


async def sessions(broker: Broker) -> AsyncIterator[SessionView]:
    """Every session that is alive, and those that ended within the last hour."""
    after = ""
    while True:
        page = await broker.sessions(after, _PAGE)
        for session in page:
            yield session
        if len(page) < _PAGE:
            return
        after = page[-1].id


async def workers(broker: Broker) -> AsyncIterator[SessionView]:
    """The same without the sessions of processes that run intakes: those run no jobs."""
    async for session in sessions(broker):
        if not intakes_run_by(session.info.queues):
            yield session
