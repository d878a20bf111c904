"""The routes, a file for each noun; `windlass.api.server` gathers them."""
