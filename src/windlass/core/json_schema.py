"""JSON Schemas of annotations, for the registry of tasks."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from windlass.core.forms import Forms


def json_schemas(annotations: list[Any], forms: Forms) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The JSON Schemas of annotations as they are read, and the definitions that they refer to."""
    inner = _Definitions()
    schemas, definitions = msgspec.json.schema_components(
        annotations,
        schema_hook=lambda kind: inner.taken_out(kind.__name__, forms.schema(kind)),
        ref_template="#/$defs/{name}",
    )
    return list(schemas), {**definitions, **inner.found}


class _Definitions:
    """Definitions inside of the schemas of single types, moved to where all of a task are."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def taken_out(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A schema without its definitions. They are kept under names of its own."""
        if "$defs" not in schema:
            return dict(schema)
        prefix = name
        while any(known.startswith(f"{prefix}.") for known in self.found):
            prefix += "_"  # another class of this name
        moved = {f"#/$defs/{key}": f"#/$defs/{prefix}.{key}" for key in schema["$defs"]}
        self.found.update((f"{prefix}.{key}", _moved(each, moved)) for key, each in schema["$defs"].items())
        return cast(
            "dict[str, Any]", _moved({key: each for key, each in schema.items() if key != "$defs"}, moved)
        )


def _moved(node: Any, moved: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        entries = cast("dict[str, Any]", node).items()
        return {
            key: moved.get(each, each) if key == "$ref" and isinstance(each, str) else _moved(each, moved)
            for key, each in entries
        }
    return [_moved(each, moved) for each in cast("list[Any]", node)] if isinstance(node, list) else node
