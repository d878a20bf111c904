"""How it went: every finished attempt of any window of time, counted and charted."""

from typing import Annotated, Literal

from litestar import get
from litestar.params import FromPath, QueryParameter

from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.bound_keys import require_named_scope, require_whole_queues
from windlass.api.context import RouteContext
from windlass.api.problems import field, not_found
from windlass.core.duration import micros
from windlass.core.names import check_task
from windlass.observe.history.report import History, checked, window_of
from windlass.observe.history.sink import By as Group
from windlass.observe.history.trail import JobHistory

Since = Annotated[
    str,
    QueryParameter(name="since", max_length=40, description='A time, or how long ago: "1h", "7d".'),
]
Until = Annotated[
    str | None,
    QueryParameter(name="until", max_length=40, description="The same; now unless said."),
]
Step = Annotated[
    str | None,
    QueryParameter(name="step", max_length=20, description='The length of a bucket, such as "1m".'),
]
TaskName = Annotated[str | None, QueryParameter(name="task", max_length=100, description="Only this task.")]
QueueName = Annotated[
    str | None, QueryParameter(name="queue", max_length=100, description="Only this queue.")
]
By = Annotated[
    Literal["task", "queue", "lane", "worker", "error"],
    QueryParameter(name="by", description="What the groups of the answer are."),
]


@get("/v1/history", guards=[requires(Scope.READ)], tags=["history"])
async def history(
    context: RouteContext,
    since: Since = "1h",
    until: Until = None,
    step: Step = None,
    task: TaskName = None,
    queue: QueueName = None,
    by: By = "task",
) -> History:
    """Failure rates, waits, run times and throughput by task and over time, and how busy the workers were.
    With `by` also by queue, lane, worker process or kind of error.

    Needs a place where history is kept (`WINDLASS_HISTORY`), else 501. It is about five seconds behind.
    """
    require_whole_queues(context.caller)
    require_named_scope(context.caller, queue, None)
    if queue is not None:
        await context.seen_queue(queue)
    now = await context.service.now()
    with field("task"):
        only = None if task is None else check_task(task)
    with field("since"):
        window = window_of(since, until, now, task=only, queue=queue)
    with field("step"):
        length = None if step is None else micros(step, name="step")
        window, length = checked(window, length)
    return await context.service.history(window, length, Group(by))


@get("/v1/history/jobs/{job:str}", guards=[requires(Scope.READ)], tags=["history"])
async def job_history(context: RouteContext, job: FromPath[str]) -> JobHistory:
    """What history knows of a job: who enqueued it, and each attempt with its worker and its error.

    Also of a job that the store has forgotten. Needs a place where history is kept, else 501.
    """
    with field("job"):
        found = await context.service.job_history(job)
    if found is None or not context.caller.sees(found.queue, found.lane):
        raise not_found(f"job {job} is not known to history", field="job")
    return found


ROUTES = (history, job_history)
