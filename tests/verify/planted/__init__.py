"""Deliberate defects, each a small patch at a seam: the checker must catch every one."""
