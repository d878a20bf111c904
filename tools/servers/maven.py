"""Jars by Maven, for servers that run on a Java that the machine has (Maven needs one, too)."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.servers.fetching import run

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>windlass</groupId><artifactId>servers</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def dependency(group: str, artifact: str, version: str, *, alone: bool = False) -> str:
    """An artifact and all that it needs; `alone`: nothing that it needs."""
    named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"    <dependency>{named}{_ALONE if alone else ''}</dependency>"


def fetch_jars(target: Path, dependencies: Sequence[str], *, what: str) -> None:
    """Put the jars into a folder, unless it is there. `what` it is, for people: `Kafka 4.3.1 (45 MB)`."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        project, jars = Path(name), Path(name) / "jars"
        (project / "pom.xml").write_text(_POM.format(dependencies="\n".join(dependencies)))
        print(f"Maven fetches {what}", flush=True)
        said = ["-f", str(project / "pom.xml"), "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        run(["mvn", "-B", "-q", *said, _COPY], why=what, tries=3)
        # Whole or not at all: what was interrupted must not look as if it were there.
        shutil.move(jars, target)
