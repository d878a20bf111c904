"""What other packages bring, by entry points: stores (`windlass.brokers`) and sinks of history
(`windlass.history`).

A name is looked up when somebody who runs the program says it, as the beginning of a URL in a setting: never
because a message or a document of a store names it.
"""

from typing import TYPE_CHECKING, Any

from windlass.errors import InvalidOption

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def brings(group: str, name: str) -> bool:
    """Whether a package brings something of this name; none of its code is imported."""
    return bool(name) and _found(group, name) is not None


def load(group: str, name: str) -> Any:
    """What a package brings under this name. `InvalidOption`: it cannot be imported."""
    found = _found(group, name)
    if found is None:
        raise InvalidOption(f'no package brings "{name}" (entry point of the group {group})')
    try:
        return found.load()
    except (ImportError, AttributeError) as error:
        brought = "" if found.dist is None else f" of {found.dist.name}"
        raise InvalidOption(f'"{name}"{brought} cannot be imported: {error}') from error


def names(group: str) -> list[str]:
    """The names of all that packages bring."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - see `_found`

    return sorted({each.name for each in entry_points(group=group)})


def _found(group: str, name: str) -> "EntryPoint | None":
    from importlib.metadata import entry_points  # noqa: PLC0415 - few programs use what others bring

    there = list(entry_points(group=group, name=name))
    packages = sorted({each.dist.name for each in there if each.dist is not None})
    if len({each.value for each in there}) > 1:
        raise InvalidOption(f'several packages bring "{name}": {", ".join(packages)}; uninstall all but one')
    return there[0] if there else None
