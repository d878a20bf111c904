"""`make servers`: fetches the servers of message brokers that tests start and that no wheel brings along.

A module for each; `fetch(folder)` puts into the folder what is missing there, and raises `CannotFetch` with a
sentence if this machine cannot have it. `windlass.verify.brokers` finds what is there and starts it.
"""
