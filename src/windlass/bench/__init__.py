"""What Windlass does on a store of yours: `windlass bench`. Side by side with other queues: `make bench`."""

URL = "WINDLASS_BENCH_URL"
"""Which store is measured: said by the command to its workers, and to `tasks` before it is imported."""
FOLDER = "WINDLASS_BENCH_FOLDER"
"""Where workers note what they have started."""
