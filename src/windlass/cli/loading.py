"""The app that a command is for."""

from typing import cast

from windlass import Windlass, loading

APP_VARIABLE = "WINDLASS_APP"


def load_app(name: str) -> Windlass:
    """Import the module that `module:app` names, and return its app."""
    return cast("Windlass", loading.load_app(name))
