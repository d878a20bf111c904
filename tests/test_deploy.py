"""The files for containers and clusters fit each other, the commands and the API. No cluster is asked."""

import asyncio
import copy
import inspect
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import pytest
import yaml
from tests.test_docs import reference

from windlass.admin.scale import Scale
from windlass.api.routes.scale import show_scale
from windlass.config import Config
from windlass.core.units import SECOND
from windlass.worker.health import Health, health_address, health_served
from windlass.worker.options import WorkerOptions
from windlass.worker.supervised_child import KILL_AFTER
from windlass.worker.supervisor import STORE_PATIENCE

CONTRIB = Path(__file__).parents[1] / "contrib"
DOCKERFILE = (CONTRIB / "containers" / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((CONTRIB / "containers" / "compose.yml").read_text())["services"]
OBJECTS: dict[tuple[str, str], Any] = {
    (found["kind"], found["metadata"]["name"]): found
    for file in sorted((CONTRIB / "kubernetes").glob("*.yaml"))
    for found in yaml.safe_load_all(file.read_text())
}
PODS = {key: found["spec"]["template"] for key, found in OBJECTS.items() if "template" in found["spec"]}
SCHEMAS = json.loads((Path(__file__).parent / "kubernetes_schemas.json").read_text())
LONGEST_STOP = Config().grace / SECOND + KILL_AFTER + STORE_PATIENCE


def container(pod: Any) -> Any:
    (only,) = pod["spec"]["containers"]
    return only


def commands() -> list[tuple[str, list[str]]]:
    """Every command that a file starts."""
    found = [(f"compose {name}", one["command"]) for name, one in COMPOSE.items() if "command" in one]
    found += [(kind, container(pod)["args"]) for (kind, _), pod in PODS.items()]
    (cmd,) = re.findall(r"^CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    return [*found, ("Dockerfile", json.loads(cmd))]


@pytest.mark.parametrize(("where", "command"), commands(), ids=lambda value: str(value)[:30])
def test_commands_and_their_options_exist(where: str, command: list[str]) -> None:
    program, name, *rest = command
    assert program == "windlass"
    for option in (word for word in rest if word.startswith("--")):
        assert f"`{option}`" in reference(name), f"{where}: windlass {name} has no {option}"


def test_the_image_runs_as_another_user_than_root_and_has_a_health_check() -> None:
    assert DOCKERFILE.count("\nFROM ") == 2
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    (user,) = re.findall(r"^USER (\d+)$", final, re.MULTILINE)
    assert int(user) > 0
    assert "\nHEALTHCHECK " in final
    assert {pod["spec"]["securityContext"]["runAsUser"] for pod in PODS.values()} == {int(user)}


def probes() -> list[tuple[list[str], int]]:
    """The commands that ask inside of a container, and the port that each is about."""
    (cmd,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    _, *test = COMPOSE["serve"]["healthcheck"]["test"]
    return [(json.loads(cmd), 8701), ([word.replace("$$", "$") for word in test], 8700)]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, as the image has it")
@pytest.mark.parametrize(("command", "port"), probes(), ids=["worker", "serve"])
def test_probes_inside_of_a_container_tell_well_from_unwell(command: list[str], port: int) -> None:
    """Both kinds of servers read HTTP/1.0; this is the one of a worker."""

    async def main() -> None:
        health = Health()
        async with health_served("0", health) as url:
            assert url is not None
            own = str(urlsplit(url).port)
            assert any(str(port) in word for word in command)
            asking = [word.replace(str(port), own) for word in command]
            assert await code_of(asking) != 0  # it has no supervisor yet
            health.supervisors = [AtWork()]
            assert await code_of(asking) == 0
        assert await code_of(asking) != 0

    asyncio.run(main())


class AtWork:
    """A supervisor that may start jobs."""

    stopping = False
    hopeless = None

    def may_start_jobs(self) -> bool:
        return True


async def code_of(command: list[str]) -> int:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


def test_the_worker_of_the_image_is_asked_where_it_answers() -> None:
    (probe, port), _ = probes()
    assert f"/{port};" in probe[-1]
    (cmd,) = re.findall(r"^CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    for arguments in (json.loads(cmd), COMPOSE["worker"]["command"]):
        assert health_address(arguments[arguments.index("--health") + 1]) == ("127.0.0.1", port)


@pytest.mark.parametrize("name", ["worker", "serve"])
def test_a_kubelet_asks_what_a_container_answers(name: str) -> None:
    """From outside of the container, so at all of its addresses."""
    one = container(PODS["Deployment", f"windlass-{name}"])
    arguments = one["args"]
    (port,) = one["ports"]
    if name == "worker":
        address = health_address(arguments[arguments.index("--health") + 1])
        assert address == ("0.0.0.0", port["containerPort"])  # noqa: S104 - the pod's own
    else:
        assert arguments[arguments.index("--host") + 1] == "0.0.0.0"  # noqa: S104
    asked = {probe: one[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert asked == {
        "startupProbe": {"path": "/healthz", "port": port["name"]},
        "readinessProbe": {"path": "/readyz", "port": port["name"]},
        "livenessProbe": {"path": "/healthz", "port": port["name"]},
    }


def test_a_worker_has_time_to_stop() -> None:
    assert int(COMPOSE["worker"]["stop_grace_period"].removesuffix("s")) > LONGEST_STOP
    assert PODS["Deployment", "windlass-worker"]["spec"]["terminationGracePeriodSeconds"] > LONGEST_STOP


def test_workers_and_server_start_after_the_migration() -> None:
    for name in ("worker", "serve"):
        assert COMPOSE[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert COMPOSE["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


@pytest.mark.parametrize("key", PODS, ids=" ".join)
def test_pods_have_no_more_rights_than_they_need(key: tuple[str, str]) -> None:
    pod = PODS[key]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert container(pod)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("key", OBJECTS, ids=" ".join)
def test_manifests_are_what_kubernetes_and_keda_take(key: tuple[str, str]) -> None:
    """By the strict schemas of Kubernetes 1.37 and KEDA 2.20: `tools/kubernetes_schemas.py` cuts them out."""
    wrong = [f"{error.instance_path}: {error.message}" for error in schema(key[0]).iter_errors(OBJECTS[key])]
    assert wrong == []


def test_a_slip_in_a_manifest_would_be_found() -> None:
    budget = copy.deepcopy(OBJECTS["PodDisruptionBudget", "windlass-worker"])
    budget["spec"]["maxUnavailabel"] = 1
    assert not schema("PodDisruptionBudget").is_valid(budget)
    deployment = copy.deepcopy(OBJECTS["Deployment", "windlass-worker"])
    container(deployment["spec"]["template"])["livenessProbe"]["httpGet"] = {"path": "/healthz"}
    assert not schema("Deployment").is_valid(deployment)
    scaled = copy.deepcopy(OBJECTS["ScaledObject", "windlass-worker"])
    scaled["spec"]["minReplicas"] = 0
    assert not schema("ScaledObject").is_valid(scaled)


def schema(kind: str) -> jsonschema_rs.Validator:
    """What a server takes for an object of a kind."""
    return jsonschema_rs.validator_for(SCHEMAS[kind])


def test_selectors_select_what_they_name() -> None:
    for name in ("worker", "serve"):
        labels = PODS["Deployment", f"windlass-{name}"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == name
        deployment = OBJECTS["Deployment", f"windlass-{name}"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        budget = OBJECTS["PodDisruptionBudget", f"windlass-{name}"]["spec"]
        assert budget["selector"] == deployment["spec"]["selector"]
    service = OBJECTS["Service", "windlass-serve"]["spec"]
    assert service["selector"] == OBJECTS["Deployment", "windlass-serve"]["spec"]["selector"]["matchLabels"]


def test_the_autoscaler_asks_the_server_what_the_api_answers() -> None:
    scaled = OBJECTS["ScaledObject", "windlass-worker"]["spec"]
    (trigger,) = scaled["triggers"]
    asked = trigger["metadata"]
    url = urlsplit(asked["url"])
    assert url.hostname is not None
    service, namespace, *rest = url.hostname.split(".")  # a short name would be one of KEDA's own namespace
    assert (namespace, rest) == ("default", ["svc"])
    assert url.port == OBJECTS["Service", service]["spec"]["ports"][0]["port"]
    assert {service, url.hostname} <= allowed_hosts(container(PODS["Deployment", "windlass-serve"])["args"])
    assert url.path in show_scale.paths
    assert set(parse_qs(url.query)) <= set(inspect.signature(show_scale.fn).parameters)
    assert asked["valueLocation"] in Scale.__struct_fields__
    assert scaled["scaleTargetRef"]["name"] == "windlass-worker"
    assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in OBJECTS


def allowed_hosts(arguments: list[str]) -> set[str]:
    return {value for option, value in pairwise(arguments) if option == "--allow-host"}


def test_a_pod_stands_for_as_many_processes_and_slots_as_it_has() -> None:
    arguments = container(PODS["Deployment", "windlass-worker"])["args"]
    processes = int(arguments[arguments.index("--processes") + 1])
    scaled = OBJECTS["ScaledObject", "windlass-worker"]["spec"]
    asked = scaled["triggers"][0]["metadata"]
    assert processes == int(asked["targetValue"])
    query = parse_qs(urlsplit(asked["url"]).query)
    assert scaled["maxReplicaCount"] * processes == int(query["most"][0])
    assert WorkerOptions().concurrency == int(query["slots"][0])
    assert "--concurrency" not in arguments
