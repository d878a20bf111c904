"""The HTTP API: for producers, operators, and workers in any language. `windlass.api.server` builds it."""
