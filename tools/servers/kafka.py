"""Fetches Kafka: its jars by Maven. It is started by a Java that the machine has (Maven needs one, too)."""

import shutil
import tempfile
from pathlib import Path

from tools.servers.fetching import run

from windlass.verify.brokers.kafka import VERSION, jars_in

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>windlass</groupId><artifactId>servers-kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <!-- The console's programs, without what others of its programs need. -->
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version>
      <exclusions>
        <exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def fetch(folder: Path) -> None:
    """Put the jars into the folder, unless they are there."""
    target = jars_in(folder)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        project, jars = Path(name), Path(name) / "jars"
        (project / "pom.xml").write_text(_POM)
        print(f"kafka: Maven fetches Kafka {VERSION} (45 MB)", flush=True)
        run(
            ["mvn", "-B", "-q", "-f", str(project / "pom.xml"), _COPY, f"-DoutputDirectory={jars}"],
            why="Kafka",
            tries=3,
        )
        # Whole or not at all: what was interrupted must not look as if it were there.
        shutil.move(jars, target)
