"""The app that a command is for."""

from typing import TYPE_CHECKING, cast

from windlass import loading

if TYPE_CHECKING:
    from windlass import Windlass


def load_app(name: str) -> "Windlass":
    """Import the module that `module:app` names, and return its app."""
    return cast("Windlass", loading.load_app(name))
