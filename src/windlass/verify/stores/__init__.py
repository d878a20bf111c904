"""Stores that a run starts for itself, and may therefore also kill, freeze, fill and cut off."""
