"""The documentation site (`make docs`) has every page and every public name; its generator checks links."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import windlass
import windlass.api
import windlass.errors
import windlass.testing

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return ROOT / "tools"


@pytest.fixture
def api(tools: Path) -> ModuleType:
    return importlib.import_module("api_pages")


@pytest.fixture
def site(tools: Path) -> ModuleType:
    return importlib.import_module("docs_pages")


def headings(page: str) -> set[str]:
    return set(re.findall(r"^## `(\w+)`$", page, re.MULTILINE))


def test_the_api_reference_has_every_public_name_and_no_other(api: ModuleType) -> None:
    pages = api.pages()
    assert headings(pages["windlass"]) == set(windlass.__all__) - {"__version__"}
    assert headings(pages["windlass.testing"]) == set(windlass.testing.__all__)
    assert headings(pages["windlass.api"]) == set(windlass.api.__all__)
    errors = {name for name, value in vars(windlass.errors).items() if isinstance(value, type)}
    assert headings(pages["windlass.errors"]) == errors
    assert "WindlassError" in errors


def test_the_api_reference_has_every_name_that_a_page_imports(api: ModuleType) -> None:
    listed = {(module, name) for module, names in api.names().items() for name in names}
    statement = re.compile(r"^ *from (windlass[\w.]*) import ([\w, ]+)$", re.MULTILINE)
    imported = {
        (module, name)
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for module, names in statement.findall(page.read_text())
        for name in names.split(", ")
    }
    assert len(imported) > 30
    assert imported - listed <= {("windlass.django", "app")}  # a project's own: an app as any other


def test_the_api_reference_leaves_out_what_only_windlass_uses(api: ModuleType) -> None:
    for kind, members in api._INTERNAL.items():
        owner = next(value for module, _ in api._MODULES.values() if (value := getattr(module, kind, None)))
        assert [name for name in members if not hasattr(owner, name)] == []
    assert "### `Windlass.send_jobs`" not in api.pages()["windlass"]
    pages = [page.read_text() for page in (ROOT / "docs").glob("*.md")]
    assert [name for name in api._INTERNAL["Windlass"] if any(f"app.{name}(" in page for page in pages)] == []


def test_the_api_reference_shows_signatures_and_docstrings(api: ModuleType) -> None:
    page = api.pages()["windlass"]
    section = page.partition("### `Windlass.queue`\n")[2].partition("\n### ")[0]
    assert "queue(" in section
    assert (windlass.Windlass.queue.__doc__ or "").split("\n")[0] in section
    assert not re.search(r"<class|\bwindlass\.core\.|#+ `\w+\._", page)


def test_every_page_of_the_index_is_in_the_navigation(site: ModuleType) -> None:
    listed = [page for _, entries in site.navigation([]) for _, page in entries]
    pages = set(site.pages())
    assert len(listed) == len(set(listed))
    assert set(listed) <= pages
    unlisted = {page for page in pages - set(listed) if not page.startswith("decisions/")}
    assert unlisted == {"index.md", "contents.md"}


def test_links_lead_to_pages_of_the_site_and_other_files_are_named(site: ModuleType) -> None:
    where = site.places()
    text = "[a](http.md#x), [b](../ARCHITECTURE.md), [c](../examples/worker.sh), [d](decisions), [e](#here)"
    assert site.site_text(text, "docs/flows.md", where) == (
        "[a](http.md#x), [b](architecture.md), c (`examples/worker.sh`), [d](decisions/index.md), [e](#here)"
    )
    assert site.site_text("[a](docs/http.md)", "README.md", where) == "[a](http.md)"
    code = "```python\n[a](nowhere.md)\n```"
    assert site.site_text(code, "README.md", where) == code


def test_no_page_needs_a_script_to_draw_a_diagram(site: ModuleType) -> None:
    pages = site.pages()
    assert [place for place, text in pages.items() if "```mermaid" in text] == []
    assert "| `ready` | `running` | claim |" in pages["architecture.md"]
    with pytest.raises(ValueError, match="only diagrams of states"):
        site.site_text("```mermaid\nflowchart TD\n```", "README.md", site.places())
