"""What every test may ask for."""

pytest_plugins = ["windlass.conformance.plugin"]
