"""`windlass serve` in processes of its own: it starts, answers, waits, and stops."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.api.served import AS_LOCAL, PATIENCE, TASKS, TOKEN, Served, environment, free_port


def test_the_store_is_swept_although_there_is_no_worker(served: Served) -> None:
    job = served.post("/v1/jobs", task="add", payload={"a": 1}, delay=0.3).json()["id"]
    until = time.monotonic() + PATIENCE
    while served.get(f"/v1/jobs/{job}").json()["state"] != "ready":
        assert time.monotonic() < until
        time.sleep(0.05)


def test_schedules_fire_although_there_is_no_worker(served: Served) -> None:
    """One job waits for the first worker; until it has started the other ticks are missed."""
    made = served.post("/v1/schedules", name="often", task="add", arguments={"a": 1}, every=1)
    assert made.status_code == 201, made.text
    until = time.monotonic() + PATIENCE
    while sum(fire["missed"] for fire in served.get("/v1/schedules/often").json()["fires"]) < 3:
        assert time.monotonic() < until
        time.sleep(0.1)
    fired, missed = served.get("/v1/schedules/often").json()["fires"]
    assert (len(fired["jobs"]), missed["jobs"]) == (1, [])
    assert served.get(f"/v1/jobs/{fired['jobs'][0]}").json()["state"] == "ready"
    # The server is that of other tests, too.
    assert httpx.delete(f"{served.url}/v1/schedules/often", headers=AS_LOCAL).status_code == 204
    assert served.post(f"/v1/jobs/{fired['jobs'][0]}/cancel").status_code == 200


def test_a_name_with_a_slash_reaches_its_route(served: Served) -> None:
    answer = served.get("/v1/queues/a%2Fb")
    assert answer.status_code == 404
    assert '"a/b"' in answer.json()["detail"]


def _has_connection(server: int, client: int) -> bool:
    """Whether the server's end of a connection is still open."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = (f":{server:04X}", f":{client:04X}")
    return any(
        row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[3] in ("01", "08") for row in rows
    )


def test_a_caller_that_left_is_handed_nothing(served: Served) -> None:
    body = b'{"queues": ["images"], "wait": 30}'
    head = "\r\n".join(
        (
            "POST /v1/leases HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {TOKEN}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
    )
    with socket.create_connection(("127.0.0.1", served.port)) as left:
        left.sendall(head.encode() + b"\r\n\r\n" + body)
        left.settimeout(1.0)
        with pytest.raises(TimeoutError):
            left.recv(1)  # it waits
        mine: int = left.getsockname()[1]
    until = time.monotonic() + PATIENCE
    while _has_connection(served.port, mine):  # the server has not noticed yet
        assert time.monotonic() < until
        time.sleep(0.01)
    job = served.post("/v1/jobs", task="resize", payload={"path": "x"}).json()["id"]
    (lease,) = served.post("/v1/leases", queues=["images"], wait=10).json()["leases"]
    assert (lease["job"], lease["attempt"]) == (job, 1)
    served.post(f"/v1/leases/{lease['lease']}/settle", outcome="ack")


def test_a_request_whose_body_still_arrives_is_answered_when_the_server_is_told_to_stop(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path)
    served.start()
    body = b'{"type": "add", "payload": {"a": 1}}'
    head = f"POST /enqueue HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as slow,
        socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as idle,
    ):
        slow.sendall(head.encode() + body[:5])
        served.get("/v1/jobs")  # its head is read by now
        os.kill(served.pid, signal.SIGTERM)
        assert idle.recv(1) == b"", "the server stops"
        _until_refused(served.port)  # nobody waits in line for a server that will not answer
        slow.sendall(body[5:])
        assert slow.recv(20).startswith(b"HTTP/1.1 201 ")
    assert served.stop() == 0


def _until_refused(port: int) -> None:
    until = time.monotonic() + PATIENCE
    while _takes_connections(port):
        assert time.monotonic() < until, "the server still takes new connections"


def _takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except (ConnectionRefusedError, ConnectionResetError):  # reset: it stood in line as the socket was closed
        return False
    return True


@pytest.mark.slow
def test_two_processes_answer_as_one_and_stop_when_told(tmp_path: Path) -> None:
    served = Served(tmp_path, "--workers", "2")
    served.start()
    jobs = {served.post("/enqueue", type="add", payload={"a": n}).json()["task_id"] for n in range(20)}
    assert {job["id"] for job in served.get("/v1/jobs").json()["items"]} == jobs
    lease = served.post("/v1/leases", queues=["default"]).json()["leases"][0]["lease"]
    answers = {served.post(f"/v1/leases/{lease}/extend").status_code for _ in range(10)}
    assert answers == {200}, "a token of one process is good for the other"
    answered: list[float] = []

    def wait() -> None:
        with contextlib.suppress(httpx.TransportError):  # it may come too late for an answer
            body = {"queues": ["images"], "wait": 50}
            httpx.post(f"{served.url}/v1/leases", json=body, headers=AS_LOCAL, timeout=60)
        answered.append(time.monotonic())

    waiting = threading.Thread(target=wait)
    waiting.start()
    began = time.monotonic()
    assert served.stop() == 0
    waiting.join(PATIENCE)
    assert answered
    assert answered[0] - began < 10, "what waits is answered, not waited for"


def _children(pid: int) -> set[int]:
    """The server processes that a process has started; Python's own helpers left out."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


def test_a_process_that_dies_is_replaced_and_none_outlives_its_parent(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.start()
    (first,) = _children(served.pid)
    os.kill(first, signal.SIGKILL)
    _until_up(served.url)
    (second,) = _children(served.pid)
    assert second != first
    assert f"server process {first} has ended" in served.log.read_text()
    served.kill_parent()
    until = time.monotonic() + PATIENCE
    while Path(f"/proc/{second}/stat").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    with pytest.raises(httpx.TransportError):
        served.get("/healthz")


def test_the_key_of_another_process_counts_at_once(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.start()
    try:
        assert served.get("/v1/jobs").status_code == 200
        key = served.command("keys", "tasks:app", "create", "--scope", "read").strip()
        until = time.monotonic() + 5
        while served.get("/v1/jobs").status_code == 200:
            assert time.monotonic() < until, "from the first key on, a key is needed"
            time.sleep(0.05)
        own = {"authorization": f"Bearer {key}"}
        assert httpx.get(f"{served.url}/v1/jobs", headers=own).status_code == 200
    finally:
        served.stop()


@pytest.mark.slow
def test_dev_serves_the_api_beside_its_worker(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = (tmp_path / "dev.log").open("ab")
    dev = subprocess.Popen(
        [sys.executable, "-m", "windlass", "dev", "tasks:app", "--port", str(port)],
        cwd=tmp_path,
        env=environment(),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        _until_up(url)
        with httpx.Client(headers=AS_LOCAL, timeout=40) as client:
            job = client.post(f"{url}/enqueue", json={"type": "add", "payload": {"a": 1}}).json()["task_id"]
            shown = client.get(f"{url}/v1/jobs/{job}", params={"wait": 30}).json()
        assert shown["result"] == 2
        (tmp_path / "tasks.py").write_text(TASKS.replace("return a + b", "return a + b + 10"))
        until = time.monotonic() + PATIENCE
        while True:
            _until_up(url)
            try:
                with httpx.Client(headers=AS_LOCAL, timeout=40) as client:
                    body = {"type": "add", "payload": {"a": 1}}
                    job = client.post(f"{url}/enqueue", json=body).json()["task_id"]
                    shown = client.get(f"{url}/v1/jobs/{job}", params={"wait": 30}).json()
            except httpx.TransportError:
                continue
            if shown.get("result") == 12:
                break
            assert time.monotonic() < until, (tmp_path / "dev.log").read_text()
        dev.send_signal(signal.SIGINT)
        dev.wait(PATIENCE)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/healthz")
    finally:
        log.close()
        if dev.poll() is None:
            os.killpg(dev.pid, signal.SIGKILL)
            dev.wait(PATIENCE)


def _until_up(url: str) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < until
        time.sleep(0.1)
