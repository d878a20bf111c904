"""Brokers: the contract of a store, and the adapters that keep it."""
