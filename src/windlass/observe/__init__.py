"""What can be seen from outside: metrics, traces, logs and history.

A layer above the broker. The worker and the client stand above it and call it in few places. What is switched
off costs them nothing.

    exposition.py   counters, gauges and histograms, and how Prometheus reads them
    measures.py     every metric there is
    meter.py        fills them from what a broker is asked and answers (`broker.observed`)
    stock.py        depth, age and workers, read from the store when somebody asks
    together.py     the counts of several processes that answer on one port
    watch.py        all of that for one namespace, and its page
    listener.py     `GET /metrics` of a worker
    traces.py       OpenTelemetry spans, if a program has set that up
    logs.py         one JSON object per line, with the job that was running
    history/        every finished attempt, kept apart from the store
"""
