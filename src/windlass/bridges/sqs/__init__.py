"""Amazon SQS, and what speaks its protocol: standard and FIFO queues.

`link.py` is the connection and what goes wrong on it, `messages.py` how a message is written into what SQS
takes, which is text; `queue.py` and `sink.py` are what a bridge uses, `advice.py` what operators are told.
"""
