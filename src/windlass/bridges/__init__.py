"""Bridges to message brokers (Kafka, RabbitMQ, NATS, SQS): in and out. docs/decisions/0030-bridges.md.

    intake        message broker → store      messages become jobs
    front door    producer → message broker → store    jobs are accepted while the store is away
    relay         store → message broker      the ends of jobs become messages

A store schedules; a message broker carries. Which message broker a URL names is in `addresses.py`. Each has a
folder with its adapters, which import its client; nothing else does. `source.py` and `sink.py` say what an
adapter must do.
"""
