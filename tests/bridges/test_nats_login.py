"""Who one is to NATS: password, token, file of credentials, certificates; and what is forbidden."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from tests.bridges.nats_keys import operated
from tests.bridges.nats_server import in_loop
from tests.broker.redis.certificates import certificates

from windlass.bridges.addresses import address_of
from windlass.bridges.message import Outgoing
from windlass.bridges.nats.adapter import open_sink, open_source
from windlass.bridges.nats.link import Link
from windlass.bridges.nats.said import StreamInfo
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.processes import Starter

SECRET = "s3cret"
Begin = Callable[[str], OwnNats]


@pytest.fixture
def begin(nats_server: OwnNats, starter: Starter, tmp_path: Path) -> Iterator[Begin]:
    """Start a server with settings of its own."""
    begun: list[OwnNats] = []

    def started(settings: str) -> OwnNats:
        server = OwnNats(starter, tmp_path / f"nats{len(begun)}", more=settings)
        begun.append(server)
        server.start()
        return server

    yield started
    for server in begun:
        server.close()


async def through(url: str) -> None:
    """Make a stream, publish to it, read it and delete it, as one who may do all that."""
    link = Link(address_of(f"{url}&monitor=" if "?" in url else url))
    await link.told("STREAM.CREATE.S", StreamInfo, {"name": "S", "subjects": ["s.>"]})
    await link.close()
    sink = await open_sink(address_of(url))
    await sink.publish([Outgoing(id="1", body=b"{}", to="s.a")])
    await sink.close()
    source = await open_source(address_of(url))
    log = await source.open("S")  # type: ignore[union-attr]
    assert len(await log.read("1", 10, 1)) == 1
    await source.close()


async def refused(url: str, why: str = "authorization violation") -> None:
    """Nobody gets in, and the message has no secret."""
    with pytest.raises(BridgeRefused, match=f"(?i){why}") as refusal:
        await open_source(address_of(url))
    assert SECRET not in str(refusal.value)


def test_user_and_password(begin: Begin) -> None:
    server = begin(f'authorization {{ user: "me@home", password: "{SECRET}" }}')
    host = f"127.0.0.1:{server.port}"
    in_loop(through(f"nats://me%40home:{SECRET}@{host}/S"))
    in_loop(refused(f"nats://me%40home:{SECRET}wrong@{host}/S"))
    in_loop(refused(f"nats://{host}/S"))


def test_a_token_as_a_user_or_as_an_option(begin: Begin) -> None:
    server = begin(f'authorization {{ token: "{SECRET}" }}')
    host = f"127.0.0.1:{server.port}"
    in_loop(through(f"nats://{host}/S?token={SECRET}"))
    in_loop(refused(f"nats://{SECRET}wrong@{host}/S"))
    in_loop(read_once(f"nats://{SECRET}@{host}/S"))


async def read_once(url: str) -> None:
    source = await open_source(address_of(url))
    assert await source.warnings()
    await source.close()


def test_a_file_of_credentials(begin: Begin, tmp_path: Path) -> None:
    keys, others = operated(tmp_path), operated(_folder(tmp_path / "other"))
    server = begin(keys.settings)
    url = f"nats://127.0.0.1:{server.port}/S"
    in_loop(through(f"{url}?creds={keys.creds}"))
    in_loop(refused(f"{url}?creds={others.creds}"))
    in_loop(refused(url))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("nothing of the kind", "is no file of credentials"),
        (
            "-----BEGIN NATS USER JWT-----\na\n-----BEGIN USER NKEY SEED-----\nSECRETBUTNOSEED\n",
            "has no seed of a user",
        ),
        (
            f"-----BEGIN NATS USER JWT-----\na\n-----BEGIN USER NKEY SEED-----\n{'SA' * 29}\n",
            "has no seed of a user",
        ),
    ],
)
def test_a_file_that_has_no_credentials(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "creds").write_text(content)
    with pytest.raises(InvalidOption, match=problem) as refusal:
        Link(address_of(f"nats://localhost/S?creds={tmp_path / 'creds'}"))
    assert "SECRET" not in str(refusal.value)


def test_tls_with_certificates_of_both(begin: Begin, tmp_path: Path) -> None:
    own, other = certificates(tmp_path), certificates(_folder(tmp_path / "other"))
    server = begin(
        f'tls {{ cert_file: "{own.server}", key_file: "{own.server_key}", ca_file: "{own.authority}", '
        "verify: true }"
    )
    url = f"tls://localhost:{server.port}/S"
    mine = f"ssl_certfile={own.client}&ssl_keyfile={own.client_key}"
    in_loop(through(f"{url}?ssl_ca_certs={own.authority}&{mine}"))
    in_loop(refused(f"{url}?ssl_ca_certs={other.authority}&{mine}", "certificate verify failed"))
    in_loop(refused(f"tls://127.0.0.1:{server.port}/S?ssl_ca_certs={own.authority}&{mine}", "certificate"))

    async def without_mine() -> None:
        with pytest.raises((BridgeRefused, BridgeUnavailable)):
            await open_source(address_of(f"{url}?ssl_ca_certs={own.authority}"))

    in_loop(without_mine())


@pytest.mark.parametrize("login", ["", f"me:{SECRET}@", f"{SECRET}@"])
def test_nothing_is_told_to_a_server_that_leaves_tls_out(login: str) -> None:
    heard = bytearray()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"headers":true}\r\n')
        while words := await reader.read(1_000):
            heard.extend(words)
            if b"PING" in words:
                writer.write(b"PONG\r\n")
        writer.close()

    async def story() -> None:
        async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            await refused(f"tls://{login}127.0.0.1:{port}/S", "does not speak TLS")

    in_loop(story())
    assert SECRET.encode() not in heard


def test_what_the_server_forbids_is_refused(begin: Begin) -> None:
    server = begin(
        "authorization { users: [ { user: me, password: me, permissions: "
        '{ publish: { deny: ["s.>"] }, subscribe: { allow: ["_INBOX.>"] } } } ] }'
    )
    url = f"nats://me:me@127.0.0.1:{server.port}/S"

    async def story() -> None:
        link = Link(address_of(url))
        await link.told("STREAM.CREATE.S", StreamInfo, {"name": "S", "subjects": ["s.>"]})
        await link.close()
        sink = await open_sink(address_of(url))
        with pytest.raises(BridgeRefused, match="permissions violation"):
            await sink.publish([Outgoing(id="1", body=b"{}", to="s.a")])
        await sink.close()

    in_loop(story())


def test_a_server_without_jetstream_is_told_of(
    nats_server: OwnNats, starter: Starter, tmp_path: Path
) -> None:
    async def story() -> None:
        client = Client()
        await client.connect(nats_server.url())
        await client.close()
        with pytest.raises(BridgeUnavailable, match="JetStream does not answer"):
            await open_source(address_of(f"{nats_server.url()}/S?domain=elsewhere"))

    in_loop(story())


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
