"""Arguments and options that several commands share."""

from typing import Annotated

from cyclopts import Parameter

App = Annotated[str, Parameter(help="The app, as module:app. By default $WINDLASS_APP.")]
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object per line.")]
Limit = Annotated[
    int | None,
    Parameter(help="Show at most this many; by default 50 on a terminal, and all in a pipe or as JSON."),
]
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask for confirmation.")]
Queue = Annotated[str | None, Parameter(help="Only this queue.")]
Task = Annotated[str | None, Parameter(help="Only this task.")]
Lane = Annotated[str | None, Parameter(help="Only this lane.")]
QueueName = Annotated[str, Parameter(help="The queue.")]
LaneName = Annotated[str, Parameter(help='The lane; "" is the lane of jobs without one.')]
JobId = Annotated[str, Parameter(help="The job's id.")]
