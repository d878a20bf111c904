"""The snippets of a page of documentation: found, and run in a folder of their own.

A Python snippet runs as a script, in its order on the page. One whose first line is a comment with a file's
name (`# tasks.py`) is that file: it is written and imported, and later snippets can import it. Snippets of
frameworks that are not installed are compiled only, and so is what imports them. Blocks marked `py` instead
of `python` are excerpts, which are compiled only.

`python tests/snippets.py PAGE` runs a page in the current folder.
"""

import ast
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import NamedTuple

OPTIONAL = frozenset(("celery", "django", "dramatiq", "rq", "time_machine"))
"""What pages are about that these tests can do without."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w/]+\.py)\n")


class Snippet(NamedTuple):
    """A block of a page."""

    language: str
    text: str
    place: str

    @property
    def file(self) -> str | None:
        """The file that it is."""
        found = _FILE.match(self.text)
        return None if found is None else found[1]


def snippets(page: Path) -> list[Snippet]:
    """All blocks of a page, in their order."""
    text = page.read_text()
    return [
        Snippet(found[1], found[2], f"{page.name}, line {text.count(chr(10), 0, found.start()) + 2}")
        for found in _BLOCK.finditer(text)
    ]


def run(page: Path, folder: Path) -> tuple[int, int]:
    """Run a page in a folder, which is on the path; how many snippets ran, and how many could not."""
    ran = skipped = 0
    missing = {name for name in OPTIONAL if importlib.util.find_spec(name) is None}
    for snippet in snippets(page):
        if snippet.language not in ("py", "python"):
            continue
        tree = ast.parse(snippet.text, snippet.place)
        module = None if snippet.file is None else snippet.file.removesuffix(".py").replace("/", ".")
        if snippet.language == "py":
            continue
        if _imported(tree) & missing:
            skipped += 1
            missing |= {module} if module else set()
            continue
        ran += 1
        if snippet.file is None or module is None:
            exec(compile(snippet.text, snippet.place, "exec"), {"__name__": "__main__"})  # noqa: S102
        else:
            file = folder / snippet.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(snippet.text)
            sys.modules.pop(module, None)
            importlib.invalidate_caches()
            importlib.import_module(module)
    return ran, skipped


def _imported(tree: ast.Module) -> set[str]:
    """Modules that a snippet imports, wherever in it, by their whole names and their first parts."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names | {name.partition(".")[0] for name in names}


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    sys.dont_write_bytecode = True
    print(*run(Path(sys.argv[1]), Path.cwd()))  # noqa: T201
