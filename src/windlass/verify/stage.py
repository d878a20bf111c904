"""Setting a run up, and clearing it away whatever happened."""

import asyncio
import shutil
import tempfile
from pathlib import Path

from windlass.errors import StoreError
from windlass.verify import http_part
from windlass.verify.brokers.fronts import Front, own_front
from windlass.verify.fleet import HOSTS, PRODUCERS, Fleet, Producers, remove_tables
from windlass.verify.ground import FRONT, HTTP
from windlass.verify.guardian import Guardian
from windlass.verify.history import Journal
from windlass.verify.http_part import SERVER, HttpPart
from windlass.verify.network import Network
from windlass.verify.processes import Starter
from windlass.verify.reader import Reader
from windlass.verify.scene import Scene
from windlass.verify.target import Target, given_store, own_store
from windlass.verify.tasks import LIMITS, RULES
from windlass.verify.wanted import Wanted


class Stage:
    """A folder, a store, a network and programs that are not started yet."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-verify-"))
        self.folder.chmod(0o711)  # a server may have to run as somebody else
        self.history = self.folder / "history"
        self._guardian = Guardian()
        self._starter = Starter(self.folder / "logs", self._guardian)
        self._network: Network | None = None
        self._http: HttpPart | None = None
        self._front: Front | None = None
        self.target: Target | None = None
        self.scene: Scene | None = None

    async def set(self) -> Scene:
        """Start the store and the proxy."""
        wanted = self._wanted
        if wanted.own is not None:
            self.target = target = await asyncio.to_thread(own_store, wanted.own, self._starter, self.folder)
        else:
            assert wanted.url is not None
            self.target = target = given_store(wanted.url)
        if wanted.front is not None:
            self._front = await asyncio.to_thread(own_front, wanted.front, self._starter, self.folder)
        if target.address is not None:
            self._network = await asyncio.to_thread(Network, target.address, [*HOSTS, PRODUCERS, SERVER])
        if http_part.why_not() is None:
            self._http = await asyncio.to_thread(
                HttpPart, self._starter, self._url, target.namespace, seed=wanted.seed
            )
        journal = Journal.open(self.history, role="harness", name="harness")
        for told in (*LIMITS, *RULES):
            journal.write(told)
        reader = Reader(target.url, target.options())
        # A store that does not answer is said before anything is started. The namespace is made by this.
        await reader.broker()
        self.scene = Scene(
            folder=self.folder,
            journal=journal,
            fleet=Fleet(self._starter, journal, self._url, target.namespace),
            producers=Producers(
                self._starter, journal, self._url, target.namespace, rate=wanted.rate, seed=wanted.seed
            ),
            reader=reader,
            network=self._network,
            http=self._http,
            own=target.own,
            disk=target.disk,
            front=self._front,
            seed=wanted.seed,
        )
        if self._http is not None:
            self.scene.fleet.others = self._http.programs
            self.scene.producers.extra[HTTP] = "yes"
        if self._front is not None:
            for staff in (self.scene.producers, self.scene.fleet):
                staff.always[FRONT] = self._front.url
        return self.scene

    def _url(self, door: str) -> str:
        assert self.target is not None
        return self.target.through(None if self._network is None else self._network.doors[door])

    async def clear(self, *, sessions: list[str]) -> str | None:
        """End and remove everything; what could not be removed, in words."""
        scene, left = self.scene, None
        if scene is not None:
            for staff in (scene.producers, scene.fleet):
                await asyncio.to_thread(staff.close)
            await scene.reader.close()
            scene.journal.flush()
        for network in (self._network, None if self._http is None else self._http.network):
            if network is not None:
                await asyncio.to_thread(network.close)
        if self.target is not None:
            try:
                await self.target.remove()
            except (StoreError, OSError) as error:
                left = str(error)
        if self._front is not None:
            await asyncio.to_thread(self._front.server.close)
        remove_tables(sessions)
        await asyncio.to_thread(self._guardian.close)
        return left

    def remove(self) -> None:
        """Remove the folder, histories and all."""
        shutil.rmtree(self.folder, ignore_errors=True)
