"""Stores and sinks of other packages: found by entry point when a setting names them, held to a suite."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.broker.memory import MemoryBroker
from windlass.broker.registry import check_url, open_broker
from windlass.errors import InvalidOption
from windlass.observe.history.conformance import OBLIGATIONS
from windlass.observe.history.sink import open_sink

Install = Callable[..., None]
SINK = Path(__file__).with_name("observe") / "list_sink.py"
STORE = """
from pathlib import Path
from windlass.broker.sqlite import SqliteBroker

async def opened(url, options, clock):
    return await SqliteBroker.open(Path(url.removeprefix("shelf://")), clock=clock, options=options)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package into the environment, as pip would."""

    def put(module: str, source: str, **entry_points: str) -> None:
        folder = tmp_path / module
        about = folder / f"{module}-1.0.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        groups = "\n".join(
            f"[windlass.{group}]\n{said.replace('->', '=')}" for group, said in entry_points.items()
        )
        (about / "entry_points.txt").write_text(groups)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return put


@pytest.mark.parametrize("obligation", OBLIGATIONS)
def test_a_sink_of_another_package_is_held_to_the_suite(install: Install, obligation: str) -> None:
    install("list_sink", SINK.read_text(), history="list -> list_sink:opened")

    async def main() -> None:
        sink = await open_sink("list://here?keep=90d", MemoryBroker())
        await OBLIGATIONS[obligation](sink)
        await sink.close()

    asyncio.run(main())


def test_a_store_of_another_package_is_used(install: Install, tmp_path: Path) -> None:
    install("shelf", STORE, brokers="shelf -> shelf:opened")
    app = Windlass(f"shelf://{tmp_path}/store.db")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        async with app.worker(concurrency=1):
            assert await (await add.aenqueue(1, 2)).aresult(timeout=10) == 3
        await app.aclose()

    asyncio.run(main())


def test_nothing_is_imported_before_it_is_used(install: Install) -> None:
    install("shelf", "raise RuntimeError('imported')", brokers="shelf -> shelf:opened")
    check_url("shelf://here/x")
    assert "shelf" not in sys.modules


def test_what_is_not_there_is_told(install: Install) -> None:
    with pytest.raises(InvalidOption, match="no store is known"):
        check_url("shelf://here/x")
    install("shelf", "", brokers="shelf -> shelf:opened")
    with pytest.raises(InvalidOption, match='"shelf" of shelf cannot be imported'):
        asyncio.run(open_broker("shelf://here/x"))
    with pytest.raises(InvalidOption, match="shelf://"):
        check_url("shelve://here/x")
    install("drawer", "", brokers="shelf -> drawer:opened")
    with pytest.raises(InvalidOption, match="several packages bring"):
        check_url("shelf://here/x")


def test_a_package_does_not_replace_what_is_built_in(install: Install) -> None:
    install("shelf", STORE, brokers="memory -> shelf:opened", history="sqlite -> shelf:opened")
    assert type(asyncio.run(open_broker("memory://"))) is MemoryBroker
