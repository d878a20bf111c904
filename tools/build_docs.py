"""Build the documentation site into `build/docs/site`: `make docs`.

    .venv/bin/python tools/build_docs.py ZENSICAL

ZENSICAL is the generator's command, in an environment of its own (`.venv-docs`). The pages fetch nothing from
other hosts. A link or anchor that leads nowhere fails the build, and so does a resource of another host.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import api_pages
import docs_pages
from project_files import ROOT

SOURCE = ROOT / "build" / "docs"
SITE = SOURCE / "site"
CONFIG = """\
[project]
site_name = "Windlass"
site_description = "A distributed task queue for Python"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = [
{nav}
]

[project.validation]
invalid_links = true
invalid_link_anchors = true

[project.extra]
generator = false

[project.theme]
language = "en"
font = false
features = [
  "content.code.copy", "navigation.footer", "navigation.sections", "navigation.tabs",
  "navigation.top", "search.highlight", "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Switch to dark mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Switch to light mode"

[project.markdown_extensions.toc]
permalink = true

[project.markdown_extensions.toc.slugify]
object = "pymdownx.slugs.slugify"
kwds = {{ case = "lower" }}

[project.markdown_extensions.tables]
[project.markdown_extensions.attr_list]
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.inlinehilite]
[project.markdown_extensions.pymdownx.superfences]
"""
_RESOURCE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'> ]+"""
    r"""|<link\b[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon)\b"""
    r"""[^>]*href=["']?(?:https?:)?//[^"'> ]+""",
    re.IGNORECASE,
)


def main(zensical: str) -> int:
    """Write the pages, build the site and look at it; return the exit code."""
    write_source()
    shutil.rmtree(SITE, ignore_errors=True)
    code = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=SOURCE, check=False).returncode
    if code:
        return code
    if found := foreign_resources():
        print("resources of other hosts:", *found, sep="\n  ", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file())
    print(f"{len(list(SITE.rglob('*.html')))} pages in build/docs/site, {size / 1e6:.1f} MB; to read them:")
    print("  python3 -m http.server --directory build/docs/site --bind 127.0.0.1 8000")
    return 0


def write_source() -> None:
    """Write what the generator reads."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    api = {f"api/{module}.md": text for module, text in api_pages.pages().items()}
    for place, text in {**docs_pages.pages(), **api}.items():
        path = SOURCE / "pages" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(docs_pages.DOCS / "images", SOURCE / "pages" / "images")
    (SOURCE / "zensical.toml").write_text(CONFIG.format(nav=_nav(list(api))))


def _nav(api: list[str]) -> str:
    lines = ['  { "Windlass" = "index.md" },']
    for title, entries in docs_pages.navigation(api):
        inside = ", ".join(f'{{ "{text}" = "{page}" }}' for text, page in entries)
        lines.append(f'  {{ "{title}" = [{inside}] }},')
    return "\n".join(lines)


def foreign_resources() -> list[str]:
    """What pages would fetch from other hosts when they are shown."""
    return [
        f"{page.relative_to(SITE)}: {found}"
        for page in sorted(SITE.rglob("*.html"))
        for found in _RESOURCE.findall(page.read_text())
    ]


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).absolute())))
