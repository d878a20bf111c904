"""The deterministic simulator: real workers and clients on virtual time, against the reference broker.

`simulate(range(10_000))` runs seeds; each is a fleet, a load and a timetable of faults, and its history is
checked like that of real processes. A seed that fails is replayed, byte for byte, with `judge(seed)`.
"""

from windlass.verify.simulator.run import RULES, Judged, Lived, Simulated, judge, live, simulate

__all__ = ["RULES", "Judged", "Lived", "Simulated", "judge", "live", "simulate"]
