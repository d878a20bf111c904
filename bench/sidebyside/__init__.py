"""Windlass and its peers, side by side: the same work on the same servers, in turns."""
