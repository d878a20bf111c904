"""How many examples Hypothesis tries: `quick` for `make test`, `thorough` for `make test-slow`."""

import os

from hypothesis import settings

# No deadline: a busy machine is not a failure. On CI the examples are the same in every run, so that a red
# run is the change's doing; new examples are found by contributors and by `thorough`.
settings.register_profile("quick", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.register_profile(
    "thorough", settings.get_profile("quick"), derandomize=False, max_examples=2_000, stateful_step_count=100
)
settings.load_profile("quick")
