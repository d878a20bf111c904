"""Whose order this is, in requests and in jobs."""

from contextvars import ContextVar

tenant: ContextVar[str] = ContextVar("tenant", default="")
