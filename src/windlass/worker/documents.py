"""Reading one document of the store."""

from windlass.broker.management import Configure
from windlass.core.settings import Document, Subject

_ROWS = 1_000


async def document_of(broker: Configure, subject: Subject) -> Document | None:
    """One document; None: there is none."""
    after: Subject | None = None
    while True:
        page = await broker.documents(subject.kind, after, _ROWS)
        for document in page:
            if document.subject == subject:
                return document
        if len(page) < _ROWS:
            return None
        after = page[-1].subject
