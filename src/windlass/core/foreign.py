"""A job that comes as data, from a file or through a front door: perhaps no producer of Windlass wrote it.

Producers of Windlass check each value where it is given. Here all values are checked at once: text ends up in
SQL, Lua and logs, and a number that no store can hold would stop the process that hands the job in.
"""

import msgspec

from windlass.core.duration import LONGEST
from windlass.core.ids import check_job_id
from windlass.core.job import NewJob, check_new_job
from windlass.core.names import (
    check_flow,
    check_headers,
    check_key,
    check_lane,
    check_queue,
    check_tags,
    check_task,
)
from windlass.core.option import whole
from windlass.core.units import MAX_INTEGER


def check_foreign(job: NewJob) -> NewJob:
    """Return the job, each tag once, or refuse it."""
    check_job_id(job.id)
    check_task(job.task)
    check_queue(job.queue)
    check_lane(job.lane)
    if job.key is not None:
        check_key(job.key)
    check_headers(job.headers)
    for edge in job.after:
        check_job_id(edge.parent)
    if job.flow:
        check_flow(job.flow)
    for name in ("window", "delay"):
        whole(getattr(job, name), name=name, least=0, most=LONGEST)
    whole(job.revision, name="revision", least=0, most=MAX_INTEGER)
    if job.run_at is not None:
        whole(job.run_at, name="run_at", least=0, most=MAX_INTEGER)
    if job.expires is not None:
        whole(job.expires, name="expires", least=1, most=LONGEST)
    tags = check_tags(job.tags)
    return check_new_job(job if tags == job.tags else msgspec.structs.replace(job, tags=tags))
