from pathlib import Path

import pytest

from windlass import Windlass
from windlass.errors import InvalidOption
from windlass.loading import load_app

GOOD = """
from windlass import Windlass
app = Windlass("memory://")
mine = Windlass("memory://")
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)


def test_an_app_is_found_by_its_name(folder: Path) -> None:
    write(folder, "loading_good", GOOD)
    assert isinstance(load_app("loading_good:mine"), Windlass)
    assert load_app("loading_good") is load_app("loading_good:app")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("loading_missing:app", None, "there is no module loading_missing in"),
        ("loading a:app", None, 'an app is named "module:app"'),
        (":app", None, 'an app is named "module:app"'),
        (
            "loading_number:number",
            GOOD,
            '"number" in module loading_number is not a Windlass app; apps',
        ),
        ("loading_wrong:ap", GOOD, "does not exist; apps in it: loading_wrong:app, loading_wrong:mine"),
        ("loading_none:app", "", "does not exist; it has none"),
        ("loading_class:Windlass", GOOD, "is not a Windlass app"),
        ("loading_raises:app", "\n\n1 / 0\n", "cannot be imported: ZeroDivisionError: division by zero"),
        ("loading_syntax:app", "def f(:\n", "cannot be imported: SyntaxError"),
        ("loading_exits:app", "import sys\nsys.exit(3)\n", "cannot be imported: SystemExit: 3"),
        (
            "loading_inner:app",
            "import no_such_module\n",
            "No module named 'no_such_module'",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        write(folder, name.partition(":")[0], text)
    with pytest.raises(InvalidOption) as caught:
        load_app(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_line_of_an_error_is_named(folder: Path) -> None:
    write(folder, "loading_line", "\n\n1 / 0\n")
    with pytest.raises(InvalidOption, match=r"loading_line\.py, line 3\)"):
        load_app("loading_line:app")
