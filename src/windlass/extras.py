"""What to install when a part of Windlass lacks a package."""


def needed(part: str, missing: ModuleNotFoundError, install: str) -> str:
    """Say which package a part needs, and what pip has to install for it."""
    package = (missing.name or "").partition(".")[0]
    return f"{part} needs the package {package}: pip install '{install}'"


def lacking(part: str, missing: ModuleNotFoundError, install: str) -> ImportError:
    """The error of a module that cannot be imported without a package."""
    return ImportError(needed(part, missing, install), name=missing.name)
