"""Servers of message brokers, which `windlass verify` and the tests start in folders of their own."""
