"""Fetches RabbitMQ and the parts of Erlang that it needs: Debian's packages, unpacked and not installed.

So it needs no root, and no service of the package's own is ever started. apt has its lists in a folder of its
own: those of the machine may be old, or not there.
"""

import shutil
import tempfile
from pathlib import Path

from tools.servers.fetching import run

from windlass.verify.brokers.rabbitmq import programs_in

_ERLANG = (
    "asn1 base crypto eldap inets mnesia os-mon parsetools public-key runtime-tools ssl syntax-tools tools "
    "xmerl"
)
_PACKAGES = ("rabbitmq-server", *(f"erlang-{part}" for part in _ERLANG.split()))
_WHERE_ERLANG_IS = "ROOTDIR=/usr/lib/erlang"


def fetch(folder: Path) -> None:
    """Put the programs into the folder, unless they are there."""
    target = programs_in(folder)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        apt, packages, root = (Path(name) / part for part in ("apt", "packages", "root"))
        for new in (apt / "lists" / "partial", apt / "archives" / "partial", packages):
            new.mkdir(parents=True)
        print("rabbitmq: apt-get fetches RabbitMQ and Erlang (33 MB)", flush=True)
        options = (
            f"Dir::State={apt}",
            f"Dir::Cache={apt}",
            "Dir::State::status=/var/lib/dpkg/status",
            "APT::Sandbox::User=root",
        )
        command = ["env", "-C", str(packages), "apt-get", "-qq", *(f"-o{option}" for option in options)]
        run([*command, "update"], why="RabbitMQ", tries=3)
        run([*command, "download", *_PACKAGES], why="RabbitMQ", tries=3)
        for package in packages.glob("*.deb"):
            run(["dpkg", "-x", str(package), str(root)], why="RabbitMQ")
        _moved(root / "usr/lib/erlang")
        # Whole or not at all: what was interrupted must not look as if it were there.
        shutil.move(root / "usr/lib", target)


def _moved(erlang: Path) -> None:
    """Let Erlang's own script find the folder that it is in."""
    for script in (erlang / "bin/erl", *erlang.glob("erts-*/bin/erl")):
        here = '$(dirname "$0")/' + "/".join([".."] * (len(script.relative_to(erlang).parts) - 1))
        script.write_text(script.read_text().replace(_WHERE_ERLANG_IS, f'ROOTDIR=$(cd "{here}" && pwd -P)'))
