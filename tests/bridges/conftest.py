"""Servers that several modules of this folder share: imported into each of them, each would start its own."""

from tests.bridges.rabbits import rabbit

__all__ = ["rabbit"]
