"""The pages of the documentation site, made from the repository's pages: `make docs` (tools/build_docs.py).

The repository's Markdown is written for readers of the repository. For the site, links lead to pages of the
site (what is not on it is named by its path), lists get the blank line that Python-Markdown wants, and
diagrams of states become tables, so that no script has to draw them.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from project_files import ROOT

DOCS = ROOT / "docs"
TOP = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/decisions": "decisions/index.md",
}
"""Where pages outside of docs/ go, and pages with another name. The project's README is the first page."""
_LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_ITEM = re.compile(r"^(?:[-*]|\d+\.) ")
_MOVE = re.compile(r"^\s*(\S+) --> (\S+): (.+)$", re.MULTILINE)


def places() -> dict[str, str]:
    """The place on the site of every page of the repository."""
    found = dict(TOP)
    for page in sorted(DOCS.rglob("*.md")):
        found.setdefault(str(page.relative_to(ROOT)), str(page.relative_to(DOCS)))
    return found


def pages() -> dict[str, str]:
    """The pages of the site, by their place."""
    where = places()
    made = {
        place: site_text((ROOT / page).read_text(), page, where)
        for page, place in where.items()
        if page.endswith(".md")
    }
    return made | {"decisions/index.md": _decisions()}


def site_text(text: str, page: str, where: dict[str, str]) -> str:
    """A page of the repository as the site shows it."""
    return "".join(_pieces(text, page, where))


def _pieces(text: str, page: str, where: dict[str, str]) -> Iterator[str]:
    end = 0
    for block in _FENCE.finditer(text):
        yield _prose(text[end : block.start()], page, where)
        yield _states(block.group()) if block.group().startswith("```mermaid") else block.group()
        end = block.end()
    yield _prose(text[end:], page, where)


def _prose(text: str, page: str, where: dict[str, str]) -> str:
    folder = PurePosixPath(page).parent

    def moved(link: re.Match[str]) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link.group()
        path = os.path.normpath(folder / target)
        if path.startswith("docs/images/"):
            place = path.removeprefix("docs/")
        elif path in where:
            place = where[path]
        else:
            return f"{link['text'].strip('[]')} (`{path}`)"
        here = PurePosixPath(where[page]).parent
        return f"{link['text']}({os.path.relpath(place, here)}{hash_}{anchor})"

    # A bar in code inside of a table is escaped for GitHub; Python-Markdown would show the backslash.
    text = _CODE.sub(lambda code: code.group().replace(r"\|", "|"), _LINK.sub(moved, text))
    return "\n".join(_spaced(text.split("\n")))


def _spaced(lines: list[str]) -> Iterator[str]:
    """A blank line before each list that follows a paragraph."""
    last, in_list = "", False
    for line in lines:
        item = _ITEM.match(line) is not None
        if item and last.strip() and not in_list:
            yield ""
        in_list = item or (in_list and (line.startswith(" ") or not line.strip()))
        last = line
        yield line


def _states(diagram: str) -> str:
    """A diagram of states as a table."""
    if "stateDiagram" not in diagram:
        raise ValueError(f"only diagrams of states become tables: {diagram.splitlines()[1]}")
    rows = [f"| {_state(a, 'new')} | {_state(b, 'gone')} | {why} |" for a, b, why in _MOVE.findall(diagram)]
    return "\n".join(("| from | to | by |", "|---|---|---|", *rows))


def _state(name: str, outside: str) -> str:
    return f"({outside})" if name == "[*]" else f"`{name}`"


def _decisions() -> str:
    lines = ["# Decisions", "", "Why things are as they are.", ""]
    for page in sorted((DOCS / "decisions").glob("*.md")):
        title = page.read_text().partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({page.name})")
    return "\n".join([*lines, ""])


def navigation(api: list[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections of the site, from the tables of docs/README.md: a test holds every page to them."""
    index = (DOCS / "README.md").read_text()
    sections = {"how to": "How-to", "look up": "Reference", "understand": "Explanation"}
    found = [("Tutorial", [("Five minutes", "five-minutes.md")])]
    for heading, title in sections.items():
        table = index.partition(f"| {heading} | |\n")[2].partition("\n\n")[0]
        cells = [row.split(" | ")[0] for row in table.splitlines()]
        links = [link for cell in cells for link in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", cell)]
        where = places()
        entries = [
            (text[0].upper() + text[1:], where[os.path.normpath(f"docs/{target}")]) for text, target in links
        ]
        if title == "Reference":
            entries += [(f"API: {Path(page).stem}", page) for page in api]
            entries += [("Changelog", "changelog.md")]
        if title == "Explanation":
            entries += [("Security", "security.md"), ("Contributing", "contributing.md")]
        found.append((title, entries))
    return found
