"""What stands in deploy/ fits its schemas, and fits the server: its flags, its probes, its time to stop."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from stepgraph_client import load_graph
from stepgraph_server import command
from stepgraph_server.api import health, server
from stepgraph_server.config import Settings
from stepgraph_server.core.instants import SECOND
from tests.support.packaging_dockerfile import parse

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def lint(tool: str, *words: str | Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name(tool), *words],
        cwd=DEPLOY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def load(path: Path) -> list[dict]:
    return list(YAML(typ="safe", pure=True).load_all(path))


@pytest.fixture
def objects():
    """Everything for Kubernetes, by kind and name."""
    found = [each for path in MANIFESTS for each in load(path)]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture
def pod(objects):
    return objects["StatefulSet", "stepgraph"]["spec"]["template"]["spec"]


@pytest.fixture
def unit():
    """What the systemd unit says of the service."""
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str
    read.read(DEPLOY / "stepgraph.service")
    return read["Service"]


@pytest.fixture
def services():
    [compose] = load(DEPLOY / "compose.yaml")
    return compose["services"]


def longest_stop_s() -> float:
    """How long the server may take to stop, step by step, as ApiServer.stop and its context do it."""
    settings = Settings().shutdown
    drain = settings.drain_grace / SECOND + 2 * server.GOODBYE_S
    watches = server.GOODBYE_S + settings.stop_grace / SECOND + server.LAST_GRACE_S
    changes = settings.stop_grace / SECOND
    return drain + watches + changes


def test_all_files_are_tidy_yaml():
    lint("yamllint", "--strict", ".")


def test_the_manifests_fit_the_schemas_of_kubernetes():
    """Without fields that Kubernetes would ignore."""
    lint("kubernetes-validate", "--strict", *MANIFESTS)


def test_the_compose_file_fits_its_schema():
    lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")


def test_kustomize_finds_everything():
    [kustomization] = load(DEPLOY / "kustomization.yaml")
    assert {DEPLOY / name for name in kustomization["resources"]} == set(MANIFESTS)
    [generated] = kustomization["configMapGenerator"]
    assert all((DEPLOY / name).is_file() for name in generated["files"])


def test_the_flags_are_ones_that_the_server_takes(pod):
    [container] = pod["containers"]
    serve, *flags = container["args"]
    assert serve == "serve"
    shown = CliRunner().invoke(command.serve, [*flags, "--settings"])
    assert shown.exit_code == 0, shown.output
    assert "0.0.0.0:7233" in shown.output


def test_probes_ask_for_names_that_the_server_has(pod):
    [container] = pod["containers"]
    asked = {name: container[name]["grpc"]["service"] for name in container if "Probe" in name}
    assert asked == {
        "startupProbe": health.LIVENESS,
        "livenessProbe": health.LIVENESS,
        "readinessProbe": health.READINESS,
    }
    [port] = container["ports"]
    assert {container[name]["grpc"]["port"] for name in asked} == {port["containerPort"]}


def test_whoever_stops_the_server_waits_for_its_drain(pod, services):
    assert pod["terminationGracePeriodSeconds"] > longest_stop_s() + 10
    assert int(services["server"]["stop_grace_period"].removesuffix("s")) > longest_stop_s() + 10


def test_whoever_stops_the_executor_waits_for_its_drain(objects, services):
    drain_s = 30
    assert f"drain_timeout_s={drain_s}" in (DEPLOY / "executor.py").read_text()
    spec = objects["Deployment", "stepgraph-executor"]["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] > drain_s
    assert int(services["executor"]["stop_grace_period"].removesuffix("s")) > drain_s


def test_nothing_has_more_rights_than_it_needs(objects, services):
    for (kind, name), each in objects.items():
        if kind not in {"StatefulSet", "Deployment"}:
            continue
        spec = each["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["automountServiceAccountToken"] is False, name
        # STEPGRAPH_PORT and others would look like settings.
        assert spec["enableServiceLinks"] is False, name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        for published in service.get("ports", []):
            assert published.startswith("127.0.0.1:"), "everybody could read everything"


def test_the_user_is_that_of_the_image(pod):
    *_, last = parse((ROOT / "Dockerfile").read_text()).stages
    context = pod["securityContext"]
    assert last.configured("USER").text == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert context["fsGroup"] == context["runAsGroup"]


def test_selectors_find_their_pods(objects):
    pods = {
        name: each["spec"]["template"]["metadata"]["labels"]
        for (_, name), each in objects.items()
        if "template" in each.get("spec", {})
    }
    for (kind, name), each in objects.items():
        if kind == "Service":
            assert each["spec"]["selector"].items() <= pods["stepgraph"].items(), name
    [rule] = objects["NetworkPolicy", "stepgraph"]["spec"]["ingress"]
    [source] = rule["from"]
    assert source["podSelector"]["matchLabels"].items() <= pods["stepgraph-executor"].items()
    governing = objects["StatefulSet", "stepgraph"]["spec"]["serviceName"]
    assert objects["Service", governing]["spec"]["clusterIP"] == "None"


def test_the_unit_fits_the_server(unit):
    """Its command is one, it waits for the drain, and it gives up where starting again can't help."""
    _, serve, *flags = unit["ExecStart"].split()
    assert serve == "serve"
    shown = CliRunner().invoke(command.serve, [*flags, "--settings"])
    assert shown.exit_code == 0, shown.output
    assert unit["StateDirectory"] in shown.output
    assert int(unit["TimeoutStopSec"].removesuffix("s")) > longest_stop_s() + 10
    hopeless = {command.EXIT_SETTING, command.EXIT_DATA, command.EXIT_DATA_IN_USE}
    assert set(map(int, unit["RestartPreventExitStatus"].split())) == hopeless


def test_there_is_one_server():
    """Two pods would be two servers with a journal each."""
    [stateful] = [
        each for path in MANIFESTS for each in load(path) if each["kind"] == "StatefulSet"
    ]
    assert stateful["spec"]["replicas"] == 1


def test_images_are_those_that_are_built(services):
    [kustomization] = load(DEPLOY / "kustomization.yaml")
    [image] = kustomization["images"]
    version = parse((ROOT / "Dockerfile").read_text()).stages[-1].steps[0].pairs["VERSION"]
    assert image == {"name": "stepgraph", "newTag": version}
    assert {each["image"] for each in services.values()} == {f"stepgraph:{version}"}
    assert (DEPLOY / services["server"]["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"


def test_the_example_graph_is_one():
    assert load_graph(DEPLOY / "hello.yaml").graph.name == "hello"
