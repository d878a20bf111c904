"""Lists of Redis as Celery (kombu) writes them: one for each step of priority, messages in envelopes."""
