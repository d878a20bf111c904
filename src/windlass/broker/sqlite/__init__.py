"""The embedded store: one SQLite file, shared by every process of a machine (`sqlite:///path`).

A verb is a function over a transaction (`transaction.py`), in the file of its concern, as in the reference
model beside it. To follow a job:

- enqueue: `broker.py` → `enqueue.py` → `lifecycle.py` (states) → `filing.py` (where it waits)
- claim: `claim.py` → `candidates.py` (who is next) → `lifecycle.start`
- settle: `settle.py` → `lifecycle.end_lease` → `lifecycle.finish`, or back to `filing.py`

Enqueue and settle have one further code path each, for many jobs that are alike: `alike.py` and `done.py`.

Around them: `writer.py` (verbs that share a commit, and then the wakes), `readers.py`, `snapshot.py` (what a
step reads), `records.py` (rows), `bells.py` (wakes), `lock.py` (writers of many processes), `log.py` (the
length of the WAL), `files.py` (opening), `identity.py` and `descriptors.py` (is it still the same file?),
`library.py` (forks), `store.py` (what one process has open). SQL lives in `sql/` and `migrations/`.
"""

from windlass.broker.sqlite.broker import SqliteBroker
from windlass.broker.sqlite.url import read_url

__all__ = ["SqliteBroker", "read_url"]
