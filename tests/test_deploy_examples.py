"""The examples of deployments fit the schemas, one another, and the gateway; what can run here runs in tests/deploy."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import crossplane
import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from gateway.access.access import check_access
from gateway.config import Config, ServerConfig, load_config
from gateway.plugins.loading import load_plugins
from gateway.process.workers import END_SECONDS
from gateway.startup.selection import select
from gateway_testing.server import run_gateway

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "examples" / "deploy"
OVERLAYS = [DEPLOY / "kubernetes" / name for name in ("vllm", "trtllm")]
COMPOSE = sorted(
    path for path in (DEPLOY / "compose").glob("*.yaml") if "services" in path.read_text()
)
TOMLS = sorted(DEPLOY.rglob("*.toml"))
KUBERNETES_VERSIONS = ("1.30", "1.34")
Json = dict[str, Any]


def environment() -> dict[str, str]:
    """What .env, and the secret of Kubernetes, have to hold."""
    text = (DEPLOY / "compose" / ".env.example").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    values = dict(line.split("=", 1) for line in lines)
    return {
        "GATEWAY_SERVER__API_KEYS": values["GATEWAY_API_KEYS"],
        "GATEWAY_SERVER__REASONING_KEYS": values["GATEWAY_REASONING_KEYS"],
    }


def loaded(path: Path) -> Config:
    return load_config(path, environment())


@pytest.fixture(params=OVERLAYS, ids=lambda path: path.name)
def overlay(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def resources(folder: Path) -> Iterator[Json]:
    """The objects of an overlay, and of what it builds on, as they are written."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        if path.is_dir():
            yield from resources(path)
        else:
            yield from yaml.safe_load_all(path.read_text())


def of_kind(overlay: Path, *kinds: str) -> dict[str, Json]:
    found = [each for each in resources(overlay) if each["kind"] in kinds]
    return {each["metadata"]["name"]: each for each in found}


def pod(workload: Json) -> Json:
    spec: Json = workload["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_fits_the_schema_of_kubernetes(overlay: Path, version: str) -> None:
    found = list(resources(overlay))
    assert len(found) > 10
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")
def test_kustomize_builds_each_overlay(overlay: Path) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(overlay)], capture_output=True, text=True, check=True
    )
    built = list(yaml.safe_load_all(done.stdout))
    assert len(built) == len(list(resources(overlay))) + 1
    (made,) = [each for each in built if each["kind"] == "ConfigMap"]
    assert made["data"]["gateway.toml"] == (overlay / "gateway.toml").read_text()
    (gateway,) = [
        each
        for each in built
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "gateway"
    ]
    # Its name has a hash of the content, so that a change of the configuration rolls the gateways.
    assert pod(gateway)["volumes"][0]["configMap"]["name"] == made["metadata"]["name"] != "gateway"


def test_every_file_is_used_by_a_kustomization(overlay: Path) -> None:
    for folder in (overlay, overlay.parent / "base"):
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
        named = {*kustomization["resources"], "kustomization.yaml"}
        for generator in kustomization.get("configMapGenerator", []):
            named.update(generator["files"])
        assert {path.name for path in folder.iterdir()} <= named


def test_selectors_ports_and_names_meet(overlay: Path) -> None:
    workloads = of_kind(overlay, "Deployment", "StatefulSet")
    by_labels = {
        tuple(each["spec"]["template"]["metadata"]["labels"].items()): each
        for each in workloads.values()
    }
    for each in workloads.values():
        labels = each["spec"]["selector"]["matchLabels"]
        assert tuple(labels.items()) in by_labels
        ports = {
            port["name"] for container in pod(each)["containers"] for port in container["ports"]
        }
        volumes = {volume["name"] for volume in pod(each).get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}  # fmt: skip
        for container in pod(each)["containers"]:
            mounted = [mount["name"] for mount in container.get("volumeMounts", [])]
            assert set(mounted) == volumes
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                how = container.get(probe, {})
                assert how.get("httpGet", how.get("tcpSocket", {})).get("port", "http") in (
                    ports | {"http"}
                )
    for service in of_kind(overlay, "Service").values():
        behind = by_labels[tuple(service["spec"]["selector"].items())]
        (port,) = service["spec"]["ports"]
        names = [each["name"] for each in pod(behind)["containers"][0]["ports"]]
        assert port["targetPort"] in names
    for budget in of_kind(overlay, "PodDisruptionBudget").values():
        assert tuple(budget["spec"]["selector"]["matchLabels"].items()) in by_labels
    for scaler in of_kind(overlay, "HorizontalPodAutoscaler").values():
        target = scaler["spec"]["scaleTargetRef"]
        assert workloads[target["name"]]["kind"] == target["kind"]
        assert "replicas" not in workloads[target["name"]]["spec"], "two would set the number"
    claims = of_kind(overlay, "PersistentVolumeClaim")
    for volume in pod(workloads["engine"])["volumes"]:
        if "persistentVolumeClaim" in volume:
            assert volume["persistentVolumeClaim"]["claimName"] in claims


def test_engines_are_found_by_dns_and_redis_by_its_name(overlay: Path) -> None:
    config = loaded(overlay / "gateway.toml")
    services = of_kind(overlay, "Service")
    for model in config.models.values():
        where = urlsplit(model.options["remote"]["dns"])
        service = services[str(where.hostname)]
        assert service["spec"]["clusterIP"] == "None", "one address would hide the replicas"
        container = pod(of_kind(overlay, "Deployment")[str(where.hostname)])["containers"][0]
        # The address is a pod's own, so the port is the container's and not the service's.
        assert [port["containerPort"] for port in container["ports"]] == [where.port]
    redis = urlsplit(config.stores["redis"]["url"])
    assert services[str(redis.hostname)]["spec"]["ports"][0]["port"] == redis.port


def test_probes_ask_what_they_are_for(overlay: Path) -> None:
    """Restarting a gateway whose engine is away would help nobody."""
    (container,) = pod(of_kind(overlay, "Deployment")["gateway"])["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    startup = container["startupProbe"]
    patience = startup["periodSeconds"] * startup["failureThreshold"]
    for model in loaded(overlay / "gateway.toml").models.values():
        assert model.options["remote"]["start_timeout"] < patience


def seconds_of_sleep(container: Json) -> int:
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    return int(seconds)


def test_streams_have_their_grace_period_before_a_pod_is_killed(overlay: Path) -> None:
    spec = pod(of_kind(overlay, "Deployment")["gateway"])
    grace = loaded(overlay / "gateway.toml").server.grace_period
    needed = seconds_of_sleep(spec["containers"][0]) + grace + END_SECONDS
    assert needed < spec["terminationGracePeriodSeconds"] < needed + 60


def test_an_engine_that_leaves_is_drained_first(overlay: Path) -> None:
    spec = pod(of_kind(overlay, "Deployment")["engine"])
    (container,) = spec["containers"]
    own = [re.fullmatch(r"--shutdown-timeout=(\d+)", each) for each in container["args"]]
    drain = sum(int(match[1]) for match in own if match)
    slept = seconds_of_sleep(container)
    assert slept > 30 + 5, "name servers' answers are kept, and the gateways ask now and then"
    assert slept + drain >= 300
    assert spec["terminationGracePeriodSeconds"] > slept + drain


def test_autoscalers_ask_for_metrics_that_exist(
    overlay: Path, llama_server: str, tmp_path: Path
) -> None:
    import httpx

    tokenizer = str(ROOT / "tests" / "models" / "tiny-qwen3")
    model = {"engine": "remote", "remote": {"urls": [llama_server], "tokenizer": tokenizer}}
    with run_gateway({"models": {"qwen": model}}, tmp_path) as gateway:
        shown = httpx.get(gateway.base_url.removesuffix("/v1") + "/metrics").text
    adapter = yaml.safe_load((DEPLOY / "kubernetes" / "prometheus-adapter.yaml").read_text())
    offered = {
        kind: {rule["name"]["as"] for rule in adapter["rules"][kind]}
        for kind in ("custom", "external")
    }
    asked = 0
    for scaler in of_kind(overlay, "HorizontalPodAutoscaler").values():
        for metric in scaler["spec"]["metrics"]:
            if metric["type"] == "Resource":
                continue
            kind = "custom" if metric["type"] == "Pods" else "external"
            wanted = metric["pods" if kind == "custom" else "external"]["metric"]
            assert wanted["name"] in offered[kind]
            assert f'{wanted["name"]}{{model="qwen"' in shown
            selector = wanted.get("selector", {}).get("matchLabels", {})
            assert set(selector.values()) <= set(loaded(overlay / "gateway.toml").models)
            asked += 1
    assert asked == 2


@pytest.mark.parametrize("path", TOMLS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_configuration_is_accepted(path: Path) -> None:
    """As far as `gateway doctor` looks without a model and a store: keys, plugins, access."""
    config = loaded(path)
    check_access(config.server)
    chosen = select(config, load_plugins(config.plugins))
    assert chosen.store is not None
    assert chosen.store[0].name == "redis", "replicas need a store that they share"
    assert [plan.name for plan in chosen.models] == list(config.models)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_every_compose_file_fits_the_specification_and_itself(path: Path) -> None:
    compose = PyCompose.from_yaml(path.read_text())
    compose.validate()
    document = yaml.safe_load(path.read_text())
    services = document["services"]
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            assert (how["condition"] == "service_healthy") <= ("healthcheck" in services[name])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert source == "./models" or (path.parent / source).is_file()
            else:
                assert source in document["volumes"]
    build = services["gateway"]["build"]
    context = (path.parent / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()
    assert services["gateway"]["deploy"]["replicas"] == 2
    assert services["gateway"]["environment"].keys() == environment().keys()
    config = loaded(path.with_suffix(".toml"))
    assert f"./{path.stem}.toml:/etc/gateway/gateway.toml:ro" in services["gateway"]["volumes"]
    stop = float(services["gateway"]["stop_grace_period"].removesuffix("s"))
    assert stop > config.server.grace_period + END_SECONDS
    assert urlsplit(config.stores["redis"]["url"]).hostname in services
    for model in config.models.values():
        assert urlsplit(model.options["remote"]["dns"]).hostname in services


def test_nginx_passes_streams_on_to_the_gateways() -> None:
    path = DEPLOY / "compose" / "nginx.conf"
    parsed = crossplane.parse(str(path), strict=True)
    assert (parsed["status"], parsed["errors"]) == ("ok", [])
    found: dict[str, list[str]] = {}

    def walk(block: list[Json]) -> None:
        for each in block:
            found[each["directive"]] = each["args"]
            walk(each.get("block", []))

    walk(parsed["config"][0]["parsed"])
    assert found["proxy_buffering"] == ["off"]
    for compose in COMPOSE:
        config = loaded(compose.with_suffix(".toml"))
        service, _, port = found_server(parsed).partition(":")
        assert service in yaml.safe_load(compose.read_text())["services"]
        assert int(port) == config.server.port
        assert float(found["proxy_read_timeout"][0].rstrip("s")) >= config.server.request_timeout
        assert float(found["client_max_body_size"][0].rstrip("m")) * 2**20 >= config.server.max_body_bytes  # fmt: skip
        assert config.server.keep_alive > 60, "nginx would send requests on connections just closed"


def found_server(parsed: Json) -> str:
    """The address in the upstream block."""
    (http,) = [each for each in parsed["config"][0]["parsed"] if each["directive"] == "http"]
    (upstream,) = [each for each in http["block"] if each["directive"] == "upstream"]
    (server,) = [each for each in upstream["block"] if each["directive"] == "server"]
    address: str = server["args"][0]
    return address


def test_the_image_has_all_that_its_parts_depend_on() -> None:
    """Our distributions are in no registry: one that is missing would not be found while the image is built."""
    text = (DEPLOY / "Dockerfile").read_text()
    folders = [ROOT / each for each in re.findall(r"(?<=\s)\./[\w/]+|(?<=\s)\.(?=\s)", text)]
    distributions = {}
    for folder in folders:
        if (file := folder / "pyproject.toml").is_file():
            project = tomllib.loads(file.read_text())["project"]
            distributions[project["name"]] = project["dependencies"]
    assert {"litegate", "litegate-console", "litegate-remote", "litegate-redis"} <= set(
        distributions
    )
    for dependencies in distributions.values():
        for each in dependencies:
            name = re.split(r"[\[<>=~ ;]", each)[0]
            assert not name.startswith("litegate") or name in distributions


def test_the_readme_names_every_file() -> None:
    text = (DEPLOY / "README.md").read_text()
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.name != "README.md" and "__pycache__" not in path.parts:
            assert path.name in text, f"{path} is in no documentation"


UNIT = DEPLOY / "systemd" / "litegate.service"


def test_the_unit_of_systemd_is_valid() -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    checked = subprocess.run([tool, "verify", UNIT], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_unit_of_systemd_fits_the_gateway() -> None:
    """Also where systemd is not installed."""
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert service["Type"] == "notify"
    grace = ServerConfig().grace_period
    assert int(service["TimeoutStopSec"]) > grace + END_SECONDS
    words = service["ExecStart"].split()
    assert [words[0], Path(words[1]).name] == ["/usr/bin/env", "gateway"]
    assert words[2:4] == ["serve", "--config"]
    # What would take the sandboxes of tools their namespaces and their /proc.
    assert not set(service).intersection(
        ("RestrictNamespaces", "PrivateUsers", "ProtectProc", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups")
    )  # fmt: skip
