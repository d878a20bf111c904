"""A server and a worker on a store of their own, as users start them, for a browser to look at."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from playwright.sync_api import BrowserContext

HERE = Path(__file__).parent
T = TypeVar("T")
PATIENCE = 30.0
TOKEN = "the-token-of-this-stage"
AS_LOCAL = {"authorization": f"Bearer {TOKEN}"}


def eventually(look: Callable[[], T], *, patience: float = PATIENCE) -> T:
    """What `look` gives once it is true; asked again and again until then."""
    deadline = time.monotonic() + patience
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {patience:g} s: {look}"
        time.sleep(0.05)
    return found


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Stage:
    """The programs, and the API for setting scenes."""

    def __init__(self, folder: Path, app: str = "shop:app") -> None:
        self.app = app
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "WINDLASS_URL": f"sqlite:///{folder / 'shop.db'}",
            "WINDLASS_HISTORY": f"sqlite:///{folder / 'history.db'}",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "WINDLASS_TOKEN": TOKEN,
        }
        self._programs: list[subprocess.Popen[bytes]] = []
        self.server: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """Start the server, or start it again."""
        self.server = self._start("serve", self.app, "--port", str(self.port))
        eventually(self._is_ready)

    def work(self) -> subprocess.Popen[bytes]:
        """Start a worker of all queues but the archive."""
        queues = ("--queues", "default,mail,images,reports") if self.app == "shop:app" else ()
        worker = self._start("worker", self.app, *queues, "--concurrency", "8")
        eventually(lambda: any(each["state"] == "alive" for each in self.get("/v1/workers")))
        return worker

    def run(self, code: str) -> str:
        """Run code of an application in a program of its own; what it prints."""
        answer = subprocess.run(
            [sys.executable, "-c", code], env=self.environment, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.strip()

    def end(self, program: subprocess.Popen[bytes]) -> None:
        """Stop a program, and wait until it has ended."""
        program.terminate()
        try:
            program.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()

    def close(self) -> None:
        """Stop all programs, the latest first."""
        for program in reversed(self._programs):
            if program.poll() is None:
                self.end(program)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"{words[0]}.log"
        with log.open("ab") as out:
            program = subprocess.Popen(
                [sys.executable, "-m", "windlass", *words],
                env=self.environment, cwd=self.folder, stdout=out, stderr=out,
            )  # fmt: skip
        self._programs.append(program)
        return program

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            assert self.server is not None
            assert self.server.poll() is None, (self.folder / "serve.log").read_text()
            return False

    def enter(self, context: BrowserContext) -> None:
        """Give a browser the cookie that it gets with the address that the server prints."""
        answer = context.request.get(f"{self.url}/?token={TOKEN}")
        assert answer.ok

    # --- the API --------------------------------------------------------------------------------------------

    def get(self, path: str, **parameters: Any) -> Any:
        """What the API tells."""
        return self._told(httpx.get(self.url + path, params=parameters, headers=AS_LOCAL, timeout=20))

    def post(self, path: str, body: object = None) -> Any:
        """Have the API do something."""
        return self._told(httpx.post(self.url + path, json=body, headers=AS_LOCAL, timeout=20))

    def _told(self, answer: httpx.Response) -> Any:
        assert answer.is_success, f"{answer.request.method} {answer.url}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def enqueue(self, task: str, payload: Mapping[str, Any] = {}, **options: Any) -> str:
        """Enqueue a job; its id."""
        return str(self.post("/v1/jobs", {"task": task, "payload": payload, **options})["id"])

    def enqueue_many(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Enqueue many; their ids."""
        ids: list[str] = []
        for start in range(0, len(jobs), 1_000):
            answer = self.post("/v1/jobs/batch", {"jobs": list(jobs[start : start + 1_000])})
            ids += [job["id"] for job in answer["jobs"]]
        return ids

    def state(self, job: str) -> str:
        """The state of a job."""
        return str(self.get(f"/v1/jobs/{job}")["state"])

    def wait_for(self, job: str, *states: str) -> None:
        """Wait until a job is in one of the states."""
        eventually(lambda: self.state(job) in states)


@contextmanager
def staged(folder: Path, *, app: str = "shop:app", worker: bool = True) -> Iterator[Stage]:
    """A stage with a server, and a worker."""
    stage = Stage(folder, app)
    try:
        stage.serve()
        if worker:
            stage.work()
        yield stage
    finally:
        stage.close()
