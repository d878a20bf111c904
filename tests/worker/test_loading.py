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
    assert load_app("loading_good:mine") is not load_app("loading_good:app")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "loading_lazy:app",
            "def __getattr__(name):\n    raise OSError('no settings')",
            "loading_lazy cannot make app: OSError: no settings (loading_lazy.py, line 2)",
        ),
        ("loading_missing:app", None, "there is no module loading_missing in"),
        ("loading a:app", None, "write module:app, such as tasks:app"),
        ("loading_bare", None, "write module:app, such as loading_bare:app"),
        ("./loading_file.py", None, "write module:app, such as loading_file:app"),
        ("loading_number:number", GOOD, "is of type int, not an app; its apps: loading_number:app, "),
        ("loading_wrong:ap", GOOD, "has no ap; its apps: loading_wrong:app, loading_wrong:mine"),
        ("loading_none:app", "", "there is no app in loading_none: make one, app = Windlass()"),
        ("loading_class:Windlass", GOOD, "is of type type, not an app"),
        (
            "loading_raises:app",
            "\n\n1 / 0\n",
            "ZeroDivisionError: division by zero (loading_raises.py, line 3)",
        ),
        ("loading_syntax:app", "def f(:\n", "SyntaxError"),
        ("loading_exits:app", "import sys\nsys.exit(3)\n", "it ends the program (loading_exits.py, line 2)"),
        ("loading_inner:app", "import no_such_module\n", "it needs no_such_module, which is not installed"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        write(folder, name.partition(":")[0], text)
    with pytest.raises(InvalidOption) as caught:
        load_app(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
