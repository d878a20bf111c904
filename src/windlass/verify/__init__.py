"""The proof: faults on purpose, histories, and a checker that believes nobody."""
