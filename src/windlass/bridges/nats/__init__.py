"""NATS with JetStream. A stream is a log; a stream of work queue or interest retention is a queue.

`link.py` is the connection, `said.py` what the server says of streams, `pulling.py` how a consumer is asked
for messages; `log.py`, `queue.py` and `sink.py` are what a bridge uses, and `advice.py` is what operators are
told.
"""
