"""Finding the app that `module:app` names, for commands and for the processes of a worker;
`module:app@namespace` is the app in another of its namespaces.

What is wrong with the name or the module is said in a line.
"""

import contextlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeGuard

from windlass.core.option import shown
from windlass.core.spelling import closest
from windlass.errors import InvalidOption

if TYPE_CHECKING:
    from windlass.worker.program import Application

_NAME = re.compile(
    r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*(\.[^\W\d]\w*)*)(@(?P<namespace>\w+))?"
)
_PACKAGE = Path(__file__).parent


def is_app(value: object) -> "TypeGuard[Application]":
    """Whether something is an application. Not by its class: workers know nothing of the client's room."""
    return not isinstance(value, type) and getattr(value, "is_windlass_app", False) is True


def looks_like_an_app(text: str) -> bool:
    """Whether text has the form `module:app`."""
    return _NAME.fullmatch(text) is not None


def load_app(name: str) -> "Application":
    """Import the module and return its app, in the namespace that the name may end with."""
    found = _NAME.fullmatch(name)
    if found is None or found["module"].endswith(".py"):
        raise InvalidOption(_misnamed(name))
    module = _imported(found["module"])
    value = _attribute(module, found["attribute"])
    if not is_app(value):
        raise InvalidOption(_no_app(module, found["attribute"], value))
    return value if found["namespace"] is None else value.within(found["namespace"])


def in_namespace(name: str, namespace: str) -> str:
    """The name under which `load_app` finds an app in one of its namespaces."""
    return f"{name.partition('@')[0]}@{namespace}"


def _misnamed(name: str) -> str:
    module, _, attribute = name.partition(":")
    plain = module.removesuffix(".py").strip("./").replace("/", ".")
    words = [word for word in plain.split(".") if word.isidentifier()]
    here = _modules(Path())
    if name.isidentifier() and here and name not in here and importlib.util.find_spec(name) is None:
        words = [closest(name, here) or here[0]]  # a task's name, or a verb's: the app was left out
    guess = f"{'.'.join(words) or 'tasks'}:{attribute if attribute.isidentifier() else 'app'}"
    return f"{shown(name)} does not name an app: write module:app, such as {guess}"


def _imported(name: str) -> ModuleType:
    try:
        folder = os.getcwd()  # noqa: PTH109 - sys.path holds text
    except FileNotFoundError:
        raise InvalidOption("the current folder does not exist any more; change to another") from None
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        # What a module prints when it is imported must not get between lines of JSON.
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidOption(_missing(name, folder)) from None
        raise InvalidOption(
            f"cannot import {name}: it needs {error.name}, which is not installed{raised_in(error)}"
        ) from error
    except SyntaxError as error:
        where = f"{_short(error.filename or '?')}, line {error.lineno}"
        raise InvalidOption(f"cannot import {name}: {type(error).__name__}: {error.msg} ({where})") from error
    except SystemExit as error:
        raise InvalidOption(
            f"cannot import {name}: it ends the program{raised_in(error)}; "
            'put what is to run under if __name__ == "__main__":'
        ) from error
    except Exception as error:
        raise InvalidOption(
            f"cannot import {name}: {type(error).__name__}: {error}{raised_in(error)}"
        ) from error


def _attribute(module: ModuleType, path: str) -> object:
    value: object = module
    try:
        for part in path.split("."):
            value = getattr(value, part, None)
    except Exception as error:  # a module may make its app when somebody asks for it, as windlass.django does
        raise InvalidOption(
            f"{module.__name__} cannot make {path}: {type(error).__name__}: {error}{raised_in(error)}"
        ) from error
    return value


def _missing(name: str, folder: str) -> str:
    here = _modules(Path(folder))
    first = name.partition(".")[0]
    near = closest(first, here)
    if near is not None and near != first:
        fix = f"did you mean {near}?"
    else:
        fix = (
            f"modules here: {', '.join(here[:8])}"
            if here
            else "no module is here: change to the folder of your code"
        )
    return f"there is no module {name} in {folder}, nor is it installed; {fix}"


def _modules(folder: Path) -> list[str]:
    """What can be imported from a folder."""
    try:
        files = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    except OSError:
        return []  # it may not be read; what is installed can be imported all the same
    return sorted(path.stem for path in files)


def raised_in(error: BaseException) -> str:
    """The line that raised, in brackets: the last one that is not Windlass's own or the import system's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not frame.filename.startswith("<") and _PACKAGE not in path.parents:
            return f" ({_short(frame.filename)}, line {frame.lineno})"
    return ""


def _short(filename: str) -> str:
    """A file as seen from here."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except ValueError:
        return filename


def _no_app(module: ModuleType, attribute: str, value: object) -> str:
    apps = sorted(name for name, found in vars(module).items() if is_app(found))
    name = module.__name__
    wrong = (
        f"{name} has no {attribute}"
        if value is None
        else f"{name}:{attribute} is of type {type(value).__name__}, not an app"
    )
    if apps:
        return f"{wrong}; its apps: {', '.join(f'{name}:{app}' for app in apps)}"
    return f"{wrong}; there is no app in {name}: make one, app = Windlass()"
