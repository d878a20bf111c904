"""The conformance suite: one test or more for every obligation of the contract, run unchanged on every
broker.

To hold a broker to the contract, write a test module like this:

    pytest_plugins = ["windlass.conformance.plugin"]      # in conftest.py

    from windlass.conformance.suite import *              # every obligation

    @pytest.fixture
    def open_broker() -> OpenBroker:
        async def opened(clock: ManualClock, options: Options) -> Broker:
            return await MyBroker.open(..., clock=clock, options=options)
        return opened

Each test gets `store`, a `windlass.conformance.harness.Harness`: a broker on an empty namespace, the clock it
runs on, and short forms of the verbs. A test is skipped only for a capability that the broker declares not to
have.

Adapters to message brokers have suites of their own: `windlass.conformance.bridges`.
"""
