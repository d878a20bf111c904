"""The embedded store: one SQLite file, shared by every process of a machine (`sqlite:///path`).

A verb is a function over a transaction (`writing.py`), in the file of its concern; `lifecycle.py` holds the
only function that changes a job's state, `filing.py` the only ones that decide where a waiting job stands, as
in the reference model. `bulk.py`, `handout.py` and `settle_many.py` are short ways through for plain jobs.
Around them: `writer.py` (group commit), `log.py` (the length of the WAL), `lock.py` (writers of many
processes), `bells.py` (wakes), `readers.py`, `files.py` (opening), `store.py` (what one process has open),
`broker.py` and `blocking.py` (the two faces). SQL lives in `sql/` and `migrations/`.
"""

from windlass.broker.sqlite.broker import SqliteBroker
from windlass.broker.sqlite.url import read_url

__all__ = ["SqliteBroker", "read_url"]
