"""`windlass explain`: why a job waits, and what to do about it."""

import shlex

from windlass.admin.advice import Advice
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.opening import with_service
from windlass.cli.output import say, say_json
from windlass.cli.text import one_line


def explain_job(app: given.App, job: given.JobId, /, *, json: given.Json = False) -> int:
    """Explain why a job waits, and what to do about it."""

    async def work(service: Service) -> None:
        advice = await service.jobs.explain(await service.jobs.one(job))
        if json:
            say_json(advice)
        else:
            _print(advice, app)

    return with_service(app, work)


def _print(advice: Advice, app: str) -> None:
    lane = f', lane "{advice.lane}"' if advice.lane else ""
    where = f' (task "{advice.task}", queue "{advice.queue}"{lane})' if advice.task else ""
    say(one_line(f"Job {advice.job}{where} is {advice.state}: {advice.text}."))
    if advice.error is not None:
        say(one_line(f"Its last error: {advice.error}"))
    if advice.do:
        say(one_line(f"What to do: {advice.do}."))
    if command := _command(advice, app):
        say(f"    {one_line(command)}")


def _command(advice: Advice, app: str) -> str:
    """Return the command that does what the advice says."""
    queue, lane, job = shlex.quote(advice.queue), shlex.quote(advice.lane), advice.job
    commands = {
        "queue_paused": f"windlass queues {app} resume {queue}",
        "lane_paused": f"windlass lanes {app} resume {queue} {lane}",
        "queue_concurrency": f"windlass queues {app} set {queue} --concurrency N",
        "queue_rate": f"windlass queues {app} set {queue} --rate N/s",
        "lane_concurrency": f"windlass lanes {app} set {queue} {lane} --concurrency N",
        "lane_rate": f"windlass lanes {app} set {queue} {lane} --rate N/s",
        "no_worker": f"windlass worker {app} --queues {queue}",
        "held": f"windlass jobs {app} cancel {job}",
        "parent_dead": f"windlass dead {app}",
    }
    if advice.why == "finished" and advice.state == "dead":
        return f"windlass dead {app} replay {job}"
    return commands.get(advice.why, "")
