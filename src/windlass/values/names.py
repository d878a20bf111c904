"""The names of objects. They follow from the job, and from nothing that a message or a user says."""

from windlass.core.ids import is_job_id
from windlass.core.units import Fence, JobId

KEPT = "kept"
"""Stands in the place of a fence: the object that says which result was the job's."""


def payloads(namespace: str) -> str:
    """What the names of all payloads begin with."""
    return f"p/{namespace}/"


def results(namespace: str) -> str:
    """What the names of all results begin with."""
    return f"r/{namespace}/"


def payload_key(namespace: str, job: JobId) -> str:
    """The name of a payload."""
    return f"{payloads(namespace)}{job}"


def results_of(namespace: str, job: JobId) -> str:
    """What the names of the results of a job begin with."""
    return f"{results(namespace)}{job}/"


def result_key(namespace: str, job: JobId, fence: Fence) -> str:
    """The name of a result."""
    return f"{results_of(namespace, job)}{fence}"


def kept_key(namespace: str, job: JobId) -> str:
    """The name of the object that says which result was the job's."""
    return f"{results_of(namespace, job)}{KEPT}"


def owner_key(namespace: str) -> str:
    """The name of the object that says of which store these are."""
    return f"o/{namespace}"


def trial_key(namespace: str, unique: str) -> str:
    """The name of an object that is put to see whether that works."""
    return f"t/{namespace}/{unique}"


def job_of(key: str) -> JobId | None:
    """The job of a payload or a result; None: somebody else has put this object here."""
    parts = key.split("/")
    return parts[2] if len(parts) == (3 if parts[0] == "p" else 4) and is_job_id(parts[2]) else None
