"""The ledger: what must be true of a broker, from what it was told and answered, and from nothing else.

It shares no code with any broker. Each module hears the answers of some verbs, holds them against what came
before (`Violated` names the invariant that does not hold) and notes what follows from them.
"""
