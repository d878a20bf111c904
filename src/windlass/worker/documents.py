"""Reading documents of the store."""

from collections.abc import AsyncIterator, Iterable

from windlass.broker.management import Configure
from windlass.core.settings import Document, Kind, Subject
from windlass.core.spelling import hint
from windlass.errors import InvalidOption

_ROWS = 1_000


async def documents_of(broker: Configure, kind: Kind) -> AsyncIterator[Document]:
    """All documents of a kind."""
    after: Subject | None = None
    while True:
        page = await broker.documents(kind, after, _ROWS)
        for document in page:
            yield document
        if len(page) < _ROWS:
            return
        after = page[-1].subject


async def document_of(broker: Configure, subject: Subject) -> Document | None:
    """One document; None: there is none."""
    async for document in documents_of(broker, subject.kind):
        if document.subject == subject:
            return document
    return None


async def check_queues(broker: Configure, queues: Iterable[str]) -> None:
    """Refuse queues that are not declared: a worker would wait for their jobs for ever."""
    known = sorted([document.subject.name async for document in documents_of(broker, Kind.QUEUE)])
    for queue in queues:
        if queue not in known:
            raise InvalidOption(f'queue "{queue}" is not declared; {hint(queue, known, "declared queues")}')
