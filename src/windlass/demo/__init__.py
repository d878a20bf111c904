"""A demonstration: several hundred jobs, two workers, things that go wrong, and an account of every job."""


def main() -> int:
    """Run it; 0 if the account closes."""
    from windlass.demo.program import demonstrate  # noqa: PLC0415 - worker processes import this room, too

    return demonstrate()
