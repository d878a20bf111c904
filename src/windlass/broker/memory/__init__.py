"""The reference model: the contract in plain Python, and the store for users' unit tests (`memory://`).

It is written to be obviously right, not fast. Every verb is a function over one `Namespace`, run under one
lock; a file per concern. `lifecycle.py` holds the only function that changes a job's state, `filing.py` the
only ones that decide where a waiting job stands.
"""

from windlass.broker.memory.broker import MemoryBroker

__all__ = ["MemoryBroker"]
