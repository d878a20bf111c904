"""History: every finished attempt, copied from the store's event log into a database of its own.

The store keeps what is unfinished, and finished jobs for a while; history answers how it went over any window
of time: failure rate, waits and run times, throughput, use of the workers.

    attempt.py    what is kept of an attempt, of who enqueued its job, and of the workers
    records.py    what the store knows of jobs besides their events
    place.py      where it is kept, as a URL names it
    sink.py       the protocol of what keeps it
    rollup.py     attempts of a minute, added up: what is read
    sql.py        the statements, which SQLite and PostgreSQL share
    sqlite.py     a file
    postgres.py   a PostgreSQL database
    reader.py     from the event log into a sink, every five seconds
    report.py     the answers
    trail.py      those about one job
"""
