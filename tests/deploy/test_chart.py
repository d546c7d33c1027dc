"""The Helm chart: what its manifests say, with each part on and off."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from holdfast import config
from tests.deploy.chart import CHART, RELEASE, ChartError, rendered, text_of

EVERYTHING = {"service__enabled": True, "monitoring__enabled": True, "scaling__enabled": True}
SMALL = {("Deployment", "worker"), ("PodDisruptionBudget", "worker"), ("Service", "worker")}


def named(manifests: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The manifests by kind and the last part of their name."""
    return {(one["kind"], one["metadata"]["name"].split("-")[-1]): one for one in manifests}


def test_chart_holds_workers_and_a_migration_until_more_is_turned_on() -> None:
    assert {*SMALL, ("Job", "migrate")} == named(rendered()).keys()
    assert SMALL == named(rendered(migrate__enabled=False)).keys()
    assert {
        *SMALL,
        ("Job", "migrate"),
        ("Deployment", "service"),
        ("Service", "holdfast"),
        ("ServiceMonitor", "worker"),
        ("ServiceMonitor", "service"),
        ("TriggerAuthentication", "holdfast"),
        ("ScaledObject", "worker"),
    } == named(rendered(**EVERYTHING)).keys()


def test_pod_has_more_time_to_end_than_jobs_have_to_finish() -> None:
    default = config.load(environment={})["worker.grace"].total_seconds()

    pod = _pod(rendered(), "worker")
    patient = _pod(rendered(worker__grace=300), "worker")

    assert default == _values()["worker"]["grace"]
    assert pod["terminationGracePeriodSeconds"] >= default + 10
    assert 315 == patient["terminationGracePeriodSeconds"]
    assert "300" == _flag(patient, "--grace")


def test_scaler_asks_the_service_about_the_slots_of_a_pod() -> None:
    changes = {"worker__slots": 5, "worker__processes": 3, "scaling__queue": "a&b"}
    found = named(rendered(**EVERYTHING, **changes))
    trigger = found["ScaledObject", "worker"]["spec"]["triggers"][0]
    service = found["Service", "holdfast"]

    assert (
        f"http://{service['metadata']['name']}.{RELEASE['Namespace']}.svc"
        f":{service['spec']['ports'][0]['port']}/api/v1/queues/a%26b/scale?slots=15"
    ) == trigger["metadata"]["url"]
    assert "desired_workers" == trigger["metadata"]["valueLocation"]
    assert "replicas" not in found["Deployment", "worker"]["spec"]
    assert (
        found["ScaledObject", "worker"]["spec"]["scaleTargetRef"]["name"]
        == (found["Deployment", "worker"]["metadata"]["name"])
    )
    assert found["ScaledObject", "worker"]["spec"]["minReplicaCount"] >= 1


def test_scaling_without_the_service_is_refused() -> None:
    with pytest.raises(ChartError, match=r"set service\.enabled"):
        rendered(scaling__enabled=True)


@pytest.mark.parametrize("part", ["worker", "service"])
def test_selectors_and_ports_meet_the_pods(part: str) -> None:
    found = named(rendered(**EVERYTHING))
    template = found["Deployment", part]["spec"]["template"]
    labels, ports = template["metadata"]["labels"], template["spec"]["containers"][0]["ports"]
    service = found["Service", "worker" if part == "worker" else "holdfast"]
    monitor = found["ServiceMonitor", part]["spec"]

    assert labels == service["spec"]["selector"] == monitor["selector"]["matchLabels"]
    assert labels == found["Deployment", part]["spec"]["selector"]["matchLabels"]
    assert labels == service["metadata"]["labels"]
    assert ports[0]["name"] == service["spec"]["ports"][0]["targetPort"]
    assert service["spec"]["ports"][0]["name"] == monitor["endpoints"][0]["port"]
    assert ("authorization" in monitor["endpoints"][0]) == (part == "service")


@pytest.mark.parametrize(
    ("kind", "part"), [("Deployment", "worker"), ("Deployment", "service"), ("Job", "migrate")]
)
def test_pods_run_without_rights(kind: str, part: str) -> None:
    pod = named(rendered(**EVERYTHING))[kind, part]["spec"]["template"]["spec"]
    container = pod["containers"][0]

    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {"drop": ["ALL"]} == container["securityContext"]["capabilities"]
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]


def test_migration_runs_before_the_pods_change() -> None:
    job = named(rendered())["Job", "migrate"]

    assert "pre-install,pre-upgrade" == job["metadata"]["annotations"]["helm.sh/hook"]
    assert "Never" == job["spec"]["template"]["spec"]["restartPolicy"]


def test_probes_ask_what_the_processes_answer() -> None:
    found = rendered(**EVERYTHING)
    worker, service = (
        _pod(found, "worker")["containers"][0],
        _pod(found, "service")["containers"][0],
    )

    assert {"livenessProbe": "/live", "readinessProbe": "/ready", "startupProbe": "/live"} == (
        _probes(worker)
    )
    assert {"livenessProbe": "/health/live", "readinessProbe": "/health/ready"} == _probes(service)


def test_strange_values_stay_strings() -> None:
    pod = _pod(rendered(image='a"b: #1', environmentSecret="123", worker__queues="a,b=3"), "worker")

    assert 'a"b: #1' == pod["containers"][0]["image"]
    assert "123" == pod["containers"][0]["envFrom"][0]["secretRef"]["name"]
    assert "a,b=3" == _flag(pod, "--queues")


def test_notes_are_a_template_too() -> None:
    scope = {"Values": _values(), "Release": RELEASE}

    assert "keys create scaler --role observer" in text_of(CHART / "templates/NOTES.txt", scope)


def test_rendered_manifests_pass_the_linter() -> None:
    on = {"enabled": True}
    values = {
        **_values(),
        **{part: _values()[part] | on for part in ("service", "monitoring", "scaling")},
    }
    scope = {"Values": values, "Release": RELEASE}
    rules = YamlLintConfig((CHART.parent.parent / ".yamllint.yml").read_text("utf-8"))

    for path in sorted((CHART / "templates").glob("*.yaml")):
        text = text_of(path, scope).lstrip("\n")

        assert [] == [str(one) for one in linter.run(text, rules)], path.name


def test_every_value_is_used() -> None:
    texts = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    paths = [
        f".Values.{section}.{name}" if name else f".Values.{section}"
        for section, names in _values().items()
        for name in (names if isinstance(names, dict) else [""])
    ]

    assert [] == [path for path in paths if path not in texts]


def _values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return values


def _pod(manifests: list[dict[str, Any]], part: str) -> dict[str, Any]:
    pod: dict[str, Any] = named(manifests)["Deployment", part]["spec"]["template"]["spec"]
    return pod


def _flag(pod: dict[str, Any], name: str) -> str:
    words = pod["containers"][0]["args"]
    return str(words[words.index(name) + 1])


def _probes(container: dict[str, Any]) -> dict[str, str]:
    return {name: value["httpGet"]["path"] for name, value in container.items() if "Probe" in name}
