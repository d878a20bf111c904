"""An ElasticMQ of one's own: it speaks SQS's protocol on the loopback, and keeps its queues in files."""

import http.client
from pathlib import Path
from typing import Final

from windlass.verify.brokers.java import OPTIONS, jars, java
from windlass.verify.brokers.places import servers_folder
from windlass.verify.processes import Starter
from windlass.verify.stores.own import Server

VERSION: Final = "1.7.1"
_SETTINGS: Final = """include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-hostname = "127.0.0.1", bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
generate-node-address = false
pekko.loglevel = WARNING
messages-storage {{ enabled = true, uri = "jdbc:h2:{data}/messages;WRITE_DELAY=0" }}
queues-storage {{ enabled = true, path = "{data}/queues.conf" }}
"""


def jars_in(folder: Path) -> Path:
    """Where `make servers` puts the jars."""
    return folder / "elasticmq" / VERSION


class OwnElasticMQ(Server):
    """A stand-in for SQS. It keeps queues and messages through `kill -9`."""

    kind = "elasticmq"
    durable = "messages in a database of its own (H2)"

    def __init__(self, starter: Starter, folder: Path) -> None:
        """`Missing`: it is not on this machine."""
        self._java = java("ElasticMQ")
        self._jars = jars(jars_in(servers_folder()), f"ElasticMQ {VERSION}", "elasticmq")
        super().__init__(starter, folder)
        self.data.mkdir(exist_ok=True)
        self._settings = folder / "elasticmq.conf"
        self._settings.write_text(_SETTINGS.format(port=self.port, data=self.data))

    @property
    def endpoint(self) -> str:
        """Where clients of SQS find it."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, address: tuple[str, int] | None = None) -> str:
        """Of a bridge, with a place for the queue."""
        host, port = address or ("127.0.0.1", self.port)
        return f"sqs://user:password@elasticmq/{{queue}}?endpoint=http://{host}:{port}"

    def command(self) -> list[str]:
        """The server."""
        settings = f"-Dconfig.file={self._settings}"
        main = "org.elasticmq.server.Main"
        return [self._java, *OPTIONS, "-Xmx192m", settings, "-cp", f"{self._jars}/*", main]

    def answers(self) -> bool:
        """Whether it serves."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            link.request("GET", "/?Action=ListQueues")
            return link.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            link.close()
