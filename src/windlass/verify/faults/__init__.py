"""Faults by family: what is done to workers, producers, the network and the store, and how it is undone."""
