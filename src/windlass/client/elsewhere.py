"""Which namespace an id is of, and what it means that the store does not know a job: never heard of, or at
home in another namespace.
"""

import contextlib
from collections.abc import Iterable

from windlass.broker.management import Configure
from windlass.broker.registry import find_namespace
from windlass.config import Config
from windlass.core.bridging import decoded
from windlass.core.ids import check_job_id, namespace_tag, tag_of
from windlass.core.intake import FRONT, IntakeStatus, status_of
from windlass.core.query import NO_RECORD
from windlass.core.units import JobId
from windlass.errors import InvalidOption, JobNotFound, StoreError
from windlass.worker.documents import document_of


def namespace_of(name: str, here: str, namespaces: Iterable[str]) -> str:
    """Where an id says that it was made; here, if it is none, or says nothing that is known."""
    with contextlib.suppress(InvalidOption):
        tag = tag_of(check_job_id(name))
        tagged = [each for each in namespaces if namespace_tag(each) == tag]
        if tagged and here not in tagged:
            return tagged[0]
    return here


async def not_known(config: Config | None, job: JobId) -> JobNotFound:
    """The error to raise. Without a configuration, other namespaces are not asked."""
    found: str | None = None
    if config is not None:
        with contextlib.suppress(StoreError):
            found = await find_namespace(config.url, config.namespace, job)
    if found is None or config is None:
        return JobNotFound(f"job {job} is not known: {NO_RECORD}")
    return JobNotFound(
        f'job {job} belongs to namespace "{found}", and this app is of "{config.namespace}"; '
        f"set WINDLASS_NAMESPACE={found}, or ask an app of that namespace"
    )


async def why_untaken(broker: Configure, job: JobId) -> str:
    """What to say of a job that the store has no record of, where jobs come through a front door."""
    document = await document_of(broker, status_of(FRONT))
    status = None if document is None else decoded(document.override, IntakeStatus)
    lags = [] if status is None else [part.lag for part in status.partitions.values() if part.lag is not None]
    behind = f"messages that are not taken yet: {sum(lags):,}" if lags else "nobody has said how far it is"
    return f"job {job} is not known: it is still at the front door ({behind}), or {NO_RECORD}"


def found_in(there: Config, here: Config, job: JobId) -> JobNotFound:
    """The error for a job that the same app keeps in another of its namespaces."""
    return JobNotFound(
        f'job {job} is in namespace "{there.namespace}", and this is "{here.namespace}"; '
        f"name the app with it: module:app@{there.namespace}"
    )
