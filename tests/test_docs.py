"""The snippets in the documentation run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [
    path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if SNIPPET.search(path.read_text())
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path) -> None:
    for number, snippet in enumerate(SNIPPET.findall(page.read_text()), 1):
        exec(compile(snippet, f"{page.name}, snippet {number}", "exec"), {"__name__": "__main__"})  # noqa: S102


def test_the_readme_has_a_snippet() -> None:
    assert ROOT / "README.md" in PAGES
