"""The Helm chart: rendered by Helm where it is installed (the command, or the package helm-python-sdk), and checked without it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.access.access import check_access
from gateway.config import load_config
from gateway.plugins.loading import load_plugins
from gateway.process.workers import END_SECONDS
from gateway.startup.selection import select

ROOT = Path(__file__).parents[1]
CHART = ROOT / "examples" / "deploy" / "helm" / "litegate"
KEYS = {"apiKeys": f'[{{name = "ops", sha256 = "{"0" * 64}"}}]', "reasoningKeys": "[]"}
REDIS: dict[str, Any] = {"secrets": KEYS, "redis": {"url": "redis://redis:6379/0"}}
VALUES: dict[str, dict[str, Any]] = {
    "redis": REDIS,
    "postgres": {
        "secrets": {"existingSecret": "mine"},
        "postgresql": {"existingSecret": "pg", "key": "dsn"},
        "env": [{"name": "UPSTREAM_KEY", "value": "x"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "imagePullSecrets": [{"name": "registry"}],
    },
    "one": {**REDIS, "replicas": 1, "redis": {}, "podDisruptionBudget": {"enabled": False}},
}
RENDER = """
import json, sys
from helm_python.chart import Chart
with Chart.load(sys.argv[1]) as chart:
    values = json.loads(sys.argv[2])
    try:
        chart.validate_schema(values)
        print("\\n---\\n".join(chart.render(values, name="gw").values()))
    except Exception as error:
        sys.exit(str(error))
"""
helm = pytest.mark.skipif(
    shutil.which("helm") is None and find_spec("helm_python") is None,
    reason="neither helm nor helm-python-sdk is installed",
)


def run_helm(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    if command := shutil.which("helm"):
        return subprocess.run(
            [command, "template", "gw", str(CHART), "-f", "-"],
            input=json.dumps(values), capture_output=True, text=True, check=False,
        )  # fmt: skip
    # In a process of its own: the library has Go's runtime and signal handlers.
    return subprocess.run(
        [sys.executable, "-c", RENDER, str(CHART), json.dumps(values)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def rendered(values: dict[str, Any]) -> dict[str, Any]:
    done = run_helm(values)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    made = {f"{each['kind']}/{each['metadata']['name']}": each for each in found}
    assert len(made) == len(found)
    return made


def defaults() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


@helm
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_what_is_rendered_fits_the_schemas(values: dict[str, Any], version: str) -> None:
    made = rendered(values)
    for each in made.values():
        kubernetes_validate.validate(each, version, strict=True)
    pod = made["Deployment/gw"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}  # fmt: skip
    assert paths == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    labels = made["Deployment/gw"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service/gw", "PodDisruptionBudget/gw"):
        if kind in made:
            selector = made[kind]["spec"]["selector"]
            assert selector.get("matchLabels", selector).items() <= labels.items()
    assert ("PodDisruptionBudget/gw" in made) == (values is not VALUES["one"])


@helm
def test_the_gateway_reads_what_is_rendered(tmp_path: Path) -> None:
    made = rendered(REDIS)
    secrets = {name: each["stringData"] for name, each in made.items() if each["kind"] == "Secret"}
    file = tmp_path / "gateway.toml"
    file.write_text(made["ConfigMap/gw"]["data"]["gateway.toml"])
    environ = {}
    for each in made["Deployment/gw"]["spec"]["template"]["spec"]["containers"][0]["env"]:
        if "value" in each:
            environ[each["name"]] = each["value"]
        else:
            where = each["valueFrom"]["secretKeyRef"]
            environ[each["name"]] = secrets[f"Secret/{where['name']}"][where["key"]]
    config = load_config(file, environ)
    assert (config.server.store, config.stores["redis"]["url"]) == ("redis", "redis://redis:6379/0")
    assert [each.name for each in config.server.api_keys] == ["ops"]
    check_access(config.server)
    select(config, load_plugins())


@helm
def test_secrets_of_the_cluster_are_referred_to() -> None:
    made = rendered(VALUES["postgres"])
    assert not [name for name in made if name.startswith("Secret/")]
    env = made["Deployment/gw"]["spec"]["template"]["spec"]["containers"][0]["env"]
    where = {each["name"]: each.get("valueFrom", {}).get("secretKeyRef") for each in env}
    assert where["GATEWAY_STORES__POSTGRES__URL"] == {"name": "pg", "key": "dsn"}
    assert where["GATEWAY_SERVER__API_KEYS"] == {"name": "mine", "key": "api-keys"}
    assert where["UPSTREAM_KEY"] is None


@helm
def test_the_service_monitor_is_optional() -> None:
    made = rendered({**REDIS, "serviceMonitor": {"enabled": True, "labels": {"release": "p"}}})
    monitor = made["ServiceMonitor/gw"]
    assert monitor["metadata"]["labels"]["release"] == "p"
    assert monitor["spec"]["endpoints"][0]["path"] == "/metrics"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= made["Service/gw"]["metadata"]["labels"].items()  # fmt: skip
    assert made["Service/gw"]["spec"]["ports"][0]["name"] == "http"


@helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "gateway key NAME"),
        ({"secrets": {**KEYS, "reasoningKeys": ""}}, "gateway key --reasoning"),
        ({"secrets": KEYS}, "set redis.url or postgresql.url"),
        ({**REDIS, "postgresql": {"url": "postgresql://x"}}, "one store"),
        ({**REDIS, "redis": {"url": "redis://x", "existingSecret": "y"}}, "not both"),
        ({**REDIS, "replica": 3}, "replica"),
        ({**REDIS, "replicas": "three"}, "replicas"),
    ],
)
def test_mistakes_stop_the_installation_with_a_sentence(values: dict[str, Any], said: str) -> None:
    done = run_helm(values)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_values_are_those_of_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = defaults()
    assert schema["additionalProperties"] is False
    assert values.keys() == schema["properties"].keys() - {"global"}
    for name, each in values.items():
        described = schema["properties"][name]
        described = schema["definitions"]["store"] if "$ref" in described else described
        if described.get("additionalProperties") is False:
            assert each.keys() == described["properties"].keys(), name


def test_every_value_is_used_and_every_used_value_exists() -> None:
    templates = "".join(each.read_text() for each in (CHART / "templates").iterdir())
    used = {tuple(each.split(".")) for each in re.findall(r"\.Values\.([\w.]+)", templates)}
    values = defaults()
    for path in used:
        level: Any = values
        for key in path:
            assert key in level, path
            level = level[key]
    assert {path[0] for path in used} == values.keys()


def test_the_default_configuration_has_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    values = defaults()
    file.write_text(values["config"])
    config = load_config(file, {"GATEWAY_SERVER__API_KEYS": KEYS["apiKeys"]})
    select(config, load_plugins())
    assert config.server.port == 8000
    before_sigterm = 10
    ends = before_sigterm + config.server.grace_period + END_SECONDS
    assert ends < values["terminationGracePeriodSeconds"]


def test_the_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == chart["version"] == project["version"]
