"""Writes the types of the dashboard from the API's own description (OpenAPI): `make web-types`.

A few lines of our own instead of a generator with forty packages: the description uses little of JSON Schema.
"""

import json
import sys
from pathlib import Path
from typing import Any

from windlass import Windlass
from windlass.api.openapi import described
from windlass.api.server import build

PLACE = Path(__file__).resolve().parent / "src" / "api" / "schema.ts"
HEAD = """\
// Made from the API's description by `make web-types`; changes here are lost.
// What the screens call these things: types.ts.

"""
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def schema() -> str:
    """The file, as the API is now."""
    spec = json.loads(described(build(Windlass("memory://"))))
    schemas: dict[str, Any] = spec["components"]["schemas"]
    # A page is written as a generic by hand.
    parts = [_declared(name, schemas[name]) for name in sorted(schemas) if not name.startswith("Page_")]
    return HEAD + "\n".join(parts)


def _declared(name: str, told: dict[str, Any]) -> str:
    if "properties" not in told:
        return f"export type {name} = {_type(told)}\n"
    required = set(told.get("required", ()))
    fields = [
        f"  {field}{'' if field in required else '?'}: {_type(each)}"
        for field, each in told["properties"].items()
    ]
    return "\n".join([f"export interface {name} {{", *fields, "}", ""])


def _type(told: dict[str, Any]) -> str:
    if "$ref" in told:
        return str(told["$ref"]).rsplit("/", 1)[1]
    if "const" in told:
        return json.dumps(told["const"])
    if "enum" in told:
        return " | ".join(json.dumps(value) for value in told["enum"])
    for union in ("anyOf", "oneOf"):
        if union in told:
            return " | ".join(dict.fromkeys(_type(each) for each in told[union]))
    kind = told.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**told, "type": each}) for each in kind)
    if kind == "array":
        inner = _type(told["items"]) if isinstance(told.get("items"), dict) else "unknown"
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        values = told.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) and values else 'unknown'}>"
    return _PLAIN.get(str(kind), "unknown")


def main() -> int:
    """Write the file."""
    PLACE.write_text(schema())
    return 0


if __name__ == "__main__":
    sys.exit(main())
