"""The suite is sharp: each of these bugs, planted in the model or the core, makes it fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Bug(NamedTuple):
    """A piece of the source, and what it is changed into."""

    file: str
    right: str
    wrong: str


BUGS = {
    "no fence check": Bug(
        "core/lease.py",
        "return state is State.RUNNING and fence == word and session_alive",
        "return state is State.RUNNING and session_alive",
    ),
    "a lease that was taken away counts": Bug(
        "core/lease.py",
        "return state is State.RUNNING and fence == word and session_alive",
        "return state is State.RUNNING and fence == word",
    ),
    "fence reused after prune": Bug("core/lease.py", "return max(last + 1, now)", "return last + 1"),
    "attempts counted on failure only": Bug(
        "broker/memory/claim.py",
        "    job.attempt += 1\n",
        "    job.attempt += bool(job.deliveries)\n",
    ),
    "bystanders of a crash charged": Bug(
        "core/settlement.py",
        "if cause.kind is CauseKind.STOP or (cause.kind is CauseKind.CRASH and not started):",
        "if cause.kind is CauseKind.STOP:",
    ),
    "a stop charges": Bug(
        "core/settlement.py",
        "if cause.kind is CauseKind.STOP or (cause.kind is CauseKind.CRASH and not started):",
        "if cause.kind is CauseKind.CRASH and not started:",
    ),
    "a repeated ask hands out new jobs": Bug(
        "broker/memory/claim.py", "if ask.seq == session.seq:", "if ask.seq < 0:"
    ),
    "a repeated ask returns what was settled": Bug(
        "broker/memory/claim.py", "if session.leases.get(job) == fence", "if job in ns.jobs"
    ),
    "a reaped session comes back by a beat": Bug(
        "broker/memory/sessions.py",
        "if session is None or session.state is SessionState.ENDED:\n        return Pulse",
        "if session is None:\n        return Pulse",
    ),
    "a reaped session comes back by opening again": Bug(
        "broker/memory/sessions.py",
        "if session is None and one.open is not None:",
        "if one.open is not None and (session is None or session.state is SessionState.ENDED):",
    ),
    "sessions reaped after an outage": Bug("core/session.py", "else OUTAGE_STEP\n", "else elapsed\n"),
    "reaping prevented by a stuttering sweeper": Bug(
        "core/session.py",
        "else OUTAGE_STEP\n",
        "else 0\n",
    ),
    "a clock that moves by a second at most": Bug(
        "core/session.py",
        "max(0, elapsed) if elapsed <= max(OUTAGE_STEP, ttl // OUTAGE_SHARE) else",
        "max(0, elapsed) if elapsed <= OUTAGE_STEP else",
    ),
    "a beat that counts from the last pass": Bug(
        "broker/memory/sessions.py", "max(session.seen, ns.liveness())", "ns.live"
    ),
    "an idle lane returns without its debt": Bug(
        "core/order.py", "self.clock = max(self.clock, time)", "self.clock = time"
    ),
    "an idle lane returns with credit": Bug(
        "core/order.py", "self.clock = max(self.clock, time)", "self.clock = self.clock"
    ),
    "replace drops the newest while the first runs": Bug(
        "core/dedup.py",
        "return KeyRuling.FOLLOW if mode is Mode.REPLACE else KeyRuling.DUPLICATE",
        "return KeyRuling.DUPLICATE",
    ),
    "replace keeps the older follower": Bug(
        "broker/memory/enqueue.py",
        "return _replace(ns, ns.jobs[key.follower], asked)",
        "return _absorb(ns, Receipt(Status.REPLACED, asked.id, key.follower))",
    ),
    "replay into a taken key": Bug(
        "broker/memory/operate.py",
        "if key is not None and key.holder != job.id and _still_holds(ns, key):",
        "if key is None and _still_holds(ns, Key(job.id, job.asked.mode, 0, 0)) and place is None:",
    ),
    "cancel undone by a crash": Bug(
        "core/settlement.py",
        "    if ended := _cancelled(facts):\n        return ended\n    if cause.kind",
        "    if cause.kind",
    ),
    "a child unblocked before its last parent": Bug(
        "broker/memory/lifecycle.py",
        "    if not child.waiting_for:\n        unblock",
        "    if True:\n        unblock",
    ),
    "an edge resolved twice": Bug(
        "broker/memory/lifecycle.py",
        "edge = ns.edges[fate.parent].pop(child_id)",
        "edge = ns.edges[fate.parent].get(child_id) if told % 2 else ns.edges[fate.parent].pop(child_id)",
    ),
    "an offset moves wherever it is": Bug(
        "core/take.py",
        "return TakeStatus.TAKEN if at == expect else TakeStatus.RACED",
        "return TakeStatus.TAKEN",
    ),
    "a log that was made anew is taken for the one before it": Bug(
        "core/take.py", "if at is not None and identity != source:", "if at is None and identity != identity:"
    ),
    "a refused take moves its offset": Bug(
        "broker/memory/offsets.py",
        "if answer.status is TakeStatus.TAKEN:",
        "if answer.receipts:",
    ),
    "what is born dead meets its key": Bug(
        "core/take.py", "key=None, mode=Mode.IGNORE, window=0, after=()", "after=()"
    ),
    "what is born dead is born alive": Bug(
        "broker/memory/enqueue.py",
        "elif job.error is not None:",
        "elif job.error is not None and job.waiting_for:",
    ),
    "a schedule fired twice for one tick": Bug(
        "broker/memory/schedules.py",
        "if schedule.version != wish.version or schedule.next_at != wish.expect:",
        "if schedule.version != wish.version:",
    ),
    "rate charged for work given back": Bug(
        "broker/memory/filing.py",
        "if rate is not None and unstarted and place.bucket is not None:",
        "if rate is None and unstarted and place.bucket is not None:",
    ),
    "a slot freed by a stop only": Bug(
        "broker/memory/filing.py", "        place.running -= 1\n", "        pass\n"
    ),
    "the window is shorter than the resend": Bug(
        "broker/memory/lifecycle.py",
        "until = job.finished_at + ns.options.resend_window",
        "until = job.finished_at",
    ),
    "a due job is handed out early": Bug(
        "broker/memory/lifecycle.py",
        "    if job.due_at > ns.now():\n",
        "    if job.due_at > ns.now() + 1_000_000:\n",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_bug_has_its_place(name: str) -> None:
    """A cheap look, so that a change of the source is noticed before the slow tests run."""
    bug = BUGS[name]
    assert (ROOT / "src" / "windlass" / bug.file).read_text().count(bug.right) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_bug_is_noticed(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    place = tmp_path / "src" / "windlass" / bug.file
    source = place.read_text()
    assert source.count(bug.right) == 1, f"{bug.file} has changed: find the place of this bug again"
    place.write_text(source.replace(bug.right, bug.wrong))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    finished = subprocess.run(
        [*command, str(ROOT / "tests/broker/test_memory.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished.stdout[-2_000:]
    assert "1 failed" in finished.stdout
    assert str(tmp_path) in finished.stdout, "the planted bug was not what ran"
