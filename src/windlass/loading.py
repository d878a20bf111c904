"""Finding an application by the name that a command line gives: `module:app`."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import TypeGuard

from windlass.core.option import shown
from windlass.errors import InvalidOption
from windlass.worker.program import Program


def load_app(name: str) -> Program:
    """The application that `module:app` names, from the current directory or what is installed.

    `InvalidOption` says in one line what is wrong: the module, an error in it, or the name in it.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidOption(f'an app is named "module:app", such as "tasks:app", not {shown(name)}')
    module = _imported(module_name)
    found: object = module
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
    if is_app(found):
        return found
    apps = [key for key, value in vars(module).items() if is_app(value)]
    hint = f"; apps in it: {', '.join(f'{module_name}:{app}' for app in apps)}" if apps else "; it has none"
    what = "is not a Windlass app" if found is not None else "does not exist"
    raise InvalidOption(f'"{attribute or "app"}" in module {module_name} {what}{hint}')


def is_app(value: object) -> TypeGuard[Program]:
    """Whether something is an application. Not by its class: workers know nothing of the client's room."""
    return not isinstance(value, type) and getattr(value, "is_windlass_app", False) is True


def _imported(module_name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InvalidOption(
                f"there is no module {module_name} in {here} or among the installed ones; "
                "name it as in an import statement, and run this where it can be imported"
            ) from None
        raise InvalidOption(_broken(module_name, error)) from error
    except SystemExit as error:
        raise InvalidOption(_broken(module_name, error)) from error
    except Exception as error:
        raise InvalidOption(_broken(module_name, error)) from error


def _broken(module_name: str, error: BaseException) -> str:
    """Where in the user's code the import failed."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}, line {error.lineno})"
    return f"module {module_name} cannot be imported: {type(error).__name__}: {error}{place}"
