"""Who one is to Kafka: certificates, passwords, and what is not allowed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.bridges.kafka_ground import Kafka
from tests.bridges.servers import without
from tests.broker.redis.certificates import Certificates, certificates

from windlass.bridges.addresses import address_of, open_sink, open_source
from windlass.bridges.message import Outgoing
from windlass.conformance.bridges.logs import read_all, said
from windlass.errors import BridgeError, BridgeRefused
from windlass.verify.brokers.kafka import Listener
from windlass.verify.brokers.places import Missing
from windlass.verify.processes import Starter
from windlass.verify.stores.own import free_port

SECRET = "s3cret"
_MODULES = "org.apache.kafka.common.security"


class Guarded:
    """A broker with listeners that want to know who comes; what each listens at."""

    def __init__(self, kafka: Kafka, files: Certificates, ports: dict[str, int]) -> None:
        self.kafka = kafka
        self.files = files
        self.ports = ports
        self.topic = kafka.topic()

    def url(self, listener: str, options: str, *, login: str = "", scheme: str = "kafkas") -> str:
        """Of the topic."""
        return f"{scheme}://{login}localhost:{self.ports[listener]}/{self.topic}{options}"


@pytest.fixture(scope="module")
def guarded(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    files = certificates(tmp_path_factory.mktemp("certificates"))
    together = files.server.with_suffix(".pem")
    together.write_text(files.server_key.read_text() + files.server.read_text())
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(together),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
    }
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required "
        f'user_alice="{SECRET}" user_bob="{SECRET}";',
        **{
            f"scram-sha-{bits}.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;"
            for bits in (256, 512)
        },
    }
    ports = {name: free_port() for name in ("TLS", "SASL", "BOTH")}
    listeners = [
        Listener(
            "TLS", ports["TLS"], ports["TLS"], "SSL", "localhost", {**tls, "ssl.client.auth": "required"}
        ),
        Listener("SASL", ports["SASL"], ports["SASL"], "SASL_PLAINTEXT", "localhost", sasl),
        Listener("BOTH", ports["BOTH"], ports["BOTH"], "SASL_SSL", "localhost", {**tls, **sasl}),
    ]
    allowed = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
    }
    try:
        kafka = Kafka(
            starter,
            tmp_path_factory.mktemp("guarded"),
            *listeners,
            scram={"alice": SECRET, "bob": SECRET},
            settings=allowed,
        )
    except Missing as missing:
        without(missing)
    try:
        kafka.broker.start()
        yield Guarded(kafka, files, ports)
    finally:
        kafka.close()


def in_a_loop(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


async def round_trip(url: str, text: str) -> None:
    """Publish and read."""
    sink = await open_sink(address_of(url))
    await sink.publish([Outgoing(id=text, body=text.encode())])
    await sink.close()
    source: Any = await open_source(address_of(url))
    log = await source.open("0")
    end = int(await log.begin(at_end=True))
    assert said(await read_all(log, str(end - 1), 1)) == [text.encode()]
    await source.close()


async def refusal(url: str) -> BridgeError:
    """Why it cannot be opened."""
    with pytest.raises(BridgeError) as refused:
        await open_source(address_of(url))
    assert SECRET not in str(refused.value)
    return refused.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_a_password(guarded: Guarded, mechanism: str) -> None:
    async def story() -> None:
        login = f"alice:{SECRET}@"
        await round_trip(
            guarded.url("SASL", f"?sasl={mechanism}", login=login, scheme="kafka"), f"open {mechanism}"
        )
        options = f"?sasl={mechanism}&ca={guarded.files.authority}"
        await round_trip(guarded.url("BOTH", options, login=login), f"sealed {mechanism}")

    in_a_loop(story)


def test_a_client_with_a_certificate(guarded: Guarded) -> None:
    files = guarded.files
    options = f"?ca={files.authority}&cert={files.client}&cert_key={files.client_key}"
    in_a_loop(lambda: round_trip(guarded.url("TLS", options), "certified"))


def test_a_wrong_password_is_refused_at_once(guarded: Guarded) -> None:
    async def story() -> None:
        url = guarded.url("SASL", "?sasl=SCRAM-SHA-512", login="alice:wrong@", scheme="kafka")
        async with asyncio.timeout(8):  # an answer may take ten seconds
            refused = await refusal(url)
        assert isinstance(refused, BridgeRefused)
        assert "uthentication" in str(refused)

    in_a_loop(story)


def test_a_server_that_nobody_vouches_for_is_refused(guarded: Guarded) -> None:
    async def story() -> None:
        async with asyncio.timeout(8):
            refused = await refusal(guarded.url("BOTH", "?sasl=PLAIN", login=f"alice:{SECRET}@"))
        assert isinstance(refused, BridgeRefused)
        assert "certificate" in str(refused)

    in_a_loop(story)


def test_a_user_who_may_not_see_the_topic_is_refused(guarded: Guarded) -> None:
    async def story() -> None:
        url = guarded.url("SASL", "?sasl=PLAIN", login=f"bob:{SECRET}@", scheme="kafka")
        refused = await refusal(url)
        assert isinstance(refused, BridgeRefused)
        assert "uthorization" in str(refused)

    in_a_loop(story)
