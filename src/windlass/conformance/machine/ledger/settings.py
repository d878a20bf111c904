"""Documents and pauses, as the ledger knows them from answers."""

from collections.abc import Sequence

import msgspec

from windlass.conformance.machine.violated import require
from windlass.core.settings import (
    Body,
    Change,
    Changed,
    Declaration,
    Document,
    Kind,
    LanePolicy,
    LaneSettings,
    QueuePolicy,
    QueueSettings,
    Retention,
    Subject,
    lane_policy,
    overlay,
    queue_policy,
)


class Settings:
    """The documents that were declared or overridden, and what is paused."""

    def __init__(self, defaults: Retention) -> None:
        self._defaults = defaults
        self.documents: dict[Subject, Document] = {}
        self.paused: set[tuple[str, str | None]] = set()

    def known(self, queue: str) -> bool:
        """Whether a queue was declared."""
        return Subject(Kind.QUEUE, queue) in self.documents

    def queue(self, queue: str) -> QueuePolicy:
        """The policy of a queue."""
        document = self.documents.get(Subject(Kind.QUEUE, queue))
        layers = (None, None) if document is None else (document.declared, document.override)
        declared, override = (layer if isinstance(layer, QueueSettings) else None for layer in layers)
        return queue_policy(overlay(declared, override), self._defaults)

    def lane(self, queue: str, lane: str) -> LanePolicy:
        """The policy of a lane."""
        document = self.documents.get(Subject(Kind.LANE, queue, lane))
        layers = (None, None) if document is None else (document.declared, document.override)
        declared, override = (layer if isinstance(layer, LaneSettings) else None for layer in layers)
        return lane_policy(overlay(declared, override), self.queue(queue))

    def version(self, subject: Subject) -> int:
        """The version of a document; 0: no such document."""
        return 0 if subject not in self.documents else self.documents[subject].version

    # what was answered

    def declared(self, declaration: Declaration, changed: Changed) -> bool:
        """A declaration was answered; whether it changed the document."""
        subject = declaration.subject
        before = self.documents.get(subject)
        if changed.change is not Change.APPLIED:
            self._stands(subject, changed)
            if before is not None and changed.change is Change.UNCHANGED:
                # The newer code is content with the document, and owns it from now on.
                revision = max(before.revision, declaration.revision)
                self.documents[subject] = msgspec.structs.replace(before, revision=revision)
            return False
        if before is not None and before.app:
            require(
                "a document belongs to the app that declared it", before.app == declaration.app, declaration
            )
            require(
                "no older revision replaces a document", before.revision <= declaration.revision, declaration
            )
        self._set(
            Document(
                subject=subject,
                declared=declaration.body,
                override=None if before is None else before.override,
                app=declaration.app,
                revision=declaration.revision,
                version=changed.version,
            )
        )
        return True

    def overridden(self, subject: Subject, body: Body | None, expect: int, changed: Changed) -> bool:
        """An override was answered; whether it changed the document."""
        before = self.documents.get(subject)
        if changed.change is not Change.APPLIED:
            self._stands(subject, changed)
            return False
        require("an override is compare-and-set", expect == self.version(subject), subject, expect)
        require("only a declaration creates a queue", subject.kind is not Kind.QUEUE or before, subject)
        if body is None and (before is None or before.declared is None):
            self.documents.pop(subject, None)
            return True
        blank = Document(subject=subject, declared=None, override=None, app="", revision=0, version=0)
        self._set(msgspec.structs.replace(before or blank, override=body, version=changed.version))
        return True

    def paused_or_resumed(self, queue: str, lane: str | None, *, paused: bool, answer: bool) -> None:
        """A pause or resume was answered."""
        require("pause answers whether the queue exists", answer == self.known(queue), queue, answer)
        if answer and paused:
            self.paused.add((queue, lane))
        elif answer:
            self.paused.discard((queue, lane))

    def read(self, documents: Sequence[Document]) -> None:
        """Documents were read: both layers are shown, as they were set."""
        shown = {document.subject: document for document in documents}
        for subject in {*shown, *self.documents}:
            read, expected = shown.get(subject), self.documents.get(subject)
            require("documents are shown as they were set", read == expected, read, expected)

    def _set(self, document: Document) -> None:
        grown = document.version > self.version(document.subject)
        require("the version of a document grows with every change", grown, document)
        self.documents[document.subject] = document

    def _stands(self, subject: Subject, changed: Changed) -> None:
        stands = changed.version == self.version(subject)
        require("an answer names the version that stands", stands, subject, changed)
