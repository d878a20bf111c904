"""A worker that speaks HTTP alone: `python -m windlass.verify.http_worker NAME PORT SEED`, until SIGTERM.

It claims jobs of the queue `foreign` under deadline leases, extends what it holds, runs one job after the
other, and says what became of them, by one or many at once, again if nobody answers. It is on purpose a
little careless: what it holds it runs, in time or not. The store has to know better.
"""

import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from windlass.verify import history
from windlass.verify.ground import FOREIGN, TOKEN, history_folder
from windlass.verify.history import Journal
from windlass.verify.processes import end_with_parent

VISIBILITY = 3.0
"""Seconds; as long as the sessions of the others may be silent."""
EXTEND_EVERY = 1.0
WAIT = 2.0
"""Seconds that a claim waits for a job."""
TIMEOUT = 5.0
"""Seconds without a byte after which an answer is given up."""
SETTLE_WITHIN = 20.0
"""Seconds for which it says again what nobody has answered."""
PAUSE = 0.2
MOST = 8
"""Jobs of one claim."""
RELEASES = 0.04
"""Of the leases: those that it gives back unstarted."""
_SECOND = 1_000_000
_LOST = {409: "stale", 410: "gone", 422: "refused"}
_OUTCOMES = {"ack": "done", "nack": "retry", "reject": "dead", "snooze": "snooze", "release": "release"}


class NoAnswer(Exception):
    """Nobody knows what became of a request."""


class Line:
    """A kept connection to the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self._headers = {
            "Authorization": f"Bearer {os.environ.get(TOKEN, '')}",
            "Content-Type": "application/json",
        }

    def post(self, path: str, body: object) -> tuple[int, Any]:
        """Status and document of the answer. `NoAnswer`: none, or one that says that it is not known."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
            self._connection.request("POST", path, json.dumps(body), self._headers)
            answer = self._connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(type(error).__name__) from None
        if status >= 500 or status in (408, 429):
            raise NoAnswer(f"status {status}")
        return status, json.loads(text)

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class HttpWorker:
    """Claims, runs, settles; a thread of its own extends what is held."""

    def __init__(self, name: str, port: int, seed: int) -> None:
        self._journal = Journal.open(history_folder(), role="worker", name=name)
        self._line, self._second_line = Line(port), Line(port)
        self._draw = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self._held: dict[str, tuple[str, int]] = {}
        self.stopping = False

    def stop(self, *_: object) -> None:
        """End after what it holds."""
        self.stopping = True

    def run(self) -> None:
        """Work until it is told to stop."""
        threading.Thread(target=self._keep, name="extend", daemon=True).start()
        while not self.stopping:
            leases = self._claim()
            together = self._draw.random() < 0.5
            ends = [(lease, *self._ended(lease)) for lease in leases] if together else []
            if ends:
                self._settle(ends)
            for lease in () if together else leases:
                self._settle([(lease, *self._ended(lease))])

    # --- claiming -------------------------------------------------------------------------------------------

    def _claim(self) -> list[dict[str, Any]]:
        journal, limit = self._journal, self._draw.randint(1, MOST)
        call = journal.call()
        journal.write(
            history.Claim(call=call, session="", number=0, limit=limit, visibility=int(VISIBILITY * _SECOND))
        )
        body = {"queues": [FOREIGN], "limit": limit, "wait": WAIT, "visibility": VISIBILITY}
        try:
            status, answer = self._line.post("/v1/leases", body)
        except NoAnswer as error:
            journal.write(history.Info(call=call, why=str(error)))
            time.sleep(PAUSE)
            return []
        if status != 200:  # the queue is not declared yet: workers of the app do that as well
            journal.write(history.Fail(call=call, why=f"status {status}"))
            time.sleep(PAUSE)
            return []
        leases: list[dict[str, Any]] = answer["leases"]
        journal.write(
            history.Claimed(
                call=call,
                session="",
                leases=tuple(
                    history.Leased(each["job"], each["fence"], each["attempt"], each["queue"], each["lane"])
                    for each in leases
                ),
            )
        )
        self._held |= {each["lease"]: (each["job"], each["fence"]) for each in leases}
        return leases

    # --- holding --------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Extend what is held, again and again."""
        while True:
            time.sleep(EXTEND_EVERY)
            for lease, (job, fence) in list(self._held.items()):
                self._extend(lease, job, fence)

    def _extend(self, lease: str, job: str, fence: int) -> None:
        journal = self._journal
        call = journal.call()
        journal.write(history.Annotate(call=call, notes=((job, fence),), extend=int(VISIBILITY * _SECOND)))
        way = self._draw.choice(("extend", "progress"))
        try:
            status, _ = self._second_line.post(f"/v1/leases/{lease}/{way}", {"visibility": VISIBILITY})
        except NoAnswer as error:
            journal.write(history.Info(call=call, why=str(error)))
            return
        verdict = "applied" if status == 200 else _LOST[status]
        journal.write(history.Annotated(call=call, answers=(history.Judged(job, fence, verdict),)))
        if status != 200:
            self._held.pop(lease, None)

    # --- running --------------------------------------------------------------------------------------------

    def _ended(self, lease: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Run a job: the word on it, and whether it was started."""
        if self._draw.random() < RELEASES:
            return {"outcome": "release"}, False
        journal, job, fence = self._journal, lease["job"], lease["fence"]
        journal.write(
            history.Start(
                job=job,
                fence=fence,
                attempt=lease["attempt"],
                task=lease["task"],
                queue=lease["queue"],
                lane=lease["lane"],
            )
        )
        began = time.monotonic()
        word = _run(lease["payload"]["kwargs"], fence, lease["attempt"])
        if word["outcome"] == "ack":
            journal.write(history.Effect(job=job, fence=fence))
        journal.write(history.End(job=job, fence=fence, how=_HOW[word["outcome"]]))
        return {**word, "runtime": time.monotonic() - began}, True

    # --- settling -------------------------------------------------------------------------------------------

    def _settle(self, ends: list[tuple[dict[str, Any], dict[str, Any], bool]]) -> None:
        """Say what became of leases, until it is answered, or no longer worth it."""
        until = time.monotonic() + SETTLE_WITHIN
        while not self._said(ends) and time.monotonic() < until:
            time.sleep(PAUSE)
        for lease, _, _ in ends:
            self._held.pop(lease["lease"], None)

    def _said(self, ends: list[tuple[dict[str, Any], dict[str, Any], bool]]) -> bool:
        journal = self._journal
        call = journal.call()
        words = tuple(
            history.Word(
                job=lease["job"],
                fence=lease["fence"],
                outcome=_OUTCOMES[word["outcome"]],
                delay=int(word.get("delay", 0) * _SECOND),
                ran=ran,
            )
            for lease, word, ran in ends
        )
        journal.write(history.Settle(call=call, words=words))
        try:
            answers = tuple(self._answers(ends))
        except NoAnswer as error:
            journal.write(history.Info(call=call, why=str(error)))
            return False
        journal.write(history.Settled(call=call, answers=answers))
        return True

    def _answers(self, ends: list[tuple[dict[str, Any], dict[str, Any], bool]]) -> Iterator[history.Judged]:
        if len(ends) == 1:
            lease, word, _ = ends[0]
            status, answer = self._line.post(f"/v1/leases/{lease['lease']}/settle", word)
            items = [answer if status == 200 else {"verdict": _LOST[status]}]
        else:
            body = {"items": [{"lease": lease["lease"], **word} for lease, word, _ in ends]}
            status, answer = self._line.post("/v1/leases/settle", body)
            if status != 200:
                raise RuntimeError(f"a settlement was answered with {status}: {answer}")
            items = answer["items"]
        for (lease, _, _), item in zip(ends, items, strict=True):
            yield history.Judged(
                lease["job"], lease["fence"], item["verdict"], item.get("outcome"), item.get("state")
            )


_HOW: dict[str, Any] = {"ack": "ok", "nack": "error", "reject": "error", "snooze": "snoozed"}


def _run(given: dict[str, Any], fence: int, attempt: int) -> dict[str, Any]:
    """The work itself; results are fences, as everywhere in a run."""
    how, number = given["how"], given["number"]
    if how == "flaky" and attempt <= number:
        return {"outcome": "nack", "delay": 0.05, "error": {"type": "ConnectionError"}}
    if how == "sleepy" and fence % 2:
        return {"outcome": "snooze", "delay": number}
    if how == "hopeless":
        return {"outcome": "reject", "error": {"type": "GiveUp", "message": "no such customer"}}
    if how == "long":
        time.sleep(number)
    return {"outcome": "ack", "result": fence}


def main() -> None:
    """Read the arguments and work."""
    end_with_parent()
    name, port, seed = sys.argv[1:]
    worker = HttpWorker(name, int(port), int(seed))
    signal.signal(signal.SIGTERM, worker.stop)
    worker.run()


if __name__ == "__main__":
    main()
