"""Fail on a file that names a package host: where packages come from is each machine's own setting.

Also refused: options that would set such a host in a requirements file, and `uv.lock`, which records one.
"""

import re
import sys
from pathlib import Path

from project_files import project_files, text_of

# In parts, so that this file names none of them.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "npmjs", "com"),
        ("registry", "yarnpkg", "com"),
        ("npm", "pkg", "github", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("repo", "maven", "apache", "org"),
        ("repo1", "maven", "org"),
        ("rubygems", "org"),
        ("conda", "anaconda", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
    )
]
HOST = re.compile(rf"(?<![\w-])(?:[\w-]+\.)*(?:{'|'.join(map(re.escape, HOSTS))})(?![\w-])", re.IGNORECASE)
OPTION = re.compile(r"^\s*(?:-i|-f|--index-url|--extra-index-url|--default-index|--index|--find-links)\b")


def complaints(path: Path) -> list[str]:
    """Return what is wrong with one file, a line of text for each finding."""
    if path.name == "uv.lock":
        return [f"{path}: names package hosts; pins are made by `make lock` (requirements/)"]
    text = text_of(path)
    if text is None:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if host := HOST.search(line):
            found.append(f"{path}:{number}: names the package host {host.group()}; remove it")
        if path.parts[0] == "requirements" and OPTION.match(line):
            found.append(f"{path}:{number}: sets where packages come from ({line.strip()}); remove it")
    return found


def main() -> int:
    """Print every finding; return the exit code."""
    found = [complaint for path in project_files() for complaint in complaints(path)]
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
