"""How long jobs waited for their first run: what a run that follows a lost one can be held to.

A job that is tried again goes to the end of its queue. Behind a backlog it waits as long as any other, and
nobody has broken a promise.
"""

from collections.abc import Iterable

from windlass.verify import history
from windlass.verify.history import Line, Micros


def longest_wait(lines: Iterable[Line]) -> Micros:
    """The longest time from being due to the first start, of all jobs that producers have sent."""
    due: dict[str, Micros] = {}
    longest = 0
    for line in lines:
        match line.event:
            case history.Enqueue() as sent:
                for asked in sent.jobs:
                    due.setdefault(asked.job, sent.at + asked.delay)
            case history.Start() as start:
                since = due.pop(start.job, None)
                if since is not None:
                    longest = max(longest, start.at - since)
            case _:
                pass
    return longest
