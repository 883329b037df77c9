"""The trial of an installed operator: it says yes only to a report on its own object as it is."""

from __future__ import annotations

from typing import Any

import pytest

from speculative_operator import trial
from speculative_operator.api.convert import to_domain
from speculative_operator.domain.spec import Check


def reported(status: str = "True", *, seen: int = 1, generation: int = 1) -> dict[str, Any]:
    labels = {trial.LABEL: "true"}
    ready = {"type": "Ready", "status": status, "reason": "ScaledToZero", "message": "m", "observedGeneration": seen}
    return {"metadata": {"generation": generation, "labels": labels}, "status": {"conditions": [ready]}}


def test_the_object_asks_for_no_pod_and_no_model() -> None:
    body = trial.trial_object("try", "models")
    spec = to_domain({**body, "metadata": {**body["metadata"], "uid": "u", "generation": 1}})
    assert (spec.replicas, spec.weights.check) == (0, Check.DISABLED)


def test_a_report_is_the_answer() -> None:
    assert trial.verdict(reported()) == "ScaledToZero: m"


@pytest.mark.parametrize(
    "found",
    [{}, {"metadata": {"generation": 1}}, reported("False"), reported("Unknown"), reported(seen=1, generation=2)],
)
def test_nothing_else_is(found: dict[str, Any]) -> None:
    assert trial.verdict(found) == ""


class Api:
    """A cluster in which nobody reports, or somebody does; it counts objects."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report, self.objects = report, 0

    def create_namespaced_custom_object(self, *_: Any, **__: Any) -> None:
        self.objects += 1

    def get_namespaced_custom_object(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.report

    def delete_namespaced_custom_object(self, *_: Any, **__: Any) -> None:
        self.objects = 0


@pytest.mark.parametrize(("report", "status"), [(reported(), 0), (reported("False"), 1)])
def test_the_object_is_gone_whatever_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: dict[str, Any], status: int
) -> None:
    api, clock = Api(report), iter(range(10_000))
    monkeypatch.setattr("kubernetes.client.CustomObjectsApi", lambda: api)
    monkeypatch.setattr("kubernetes.config.load_incluster_config", lambda: None)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert trial.main(["try", "--namespace", "models"]) == status
    assert api.objects == 0
    told = capsys.readouterr()
    assert ("reconciles" in told.out, "watchNamespaces" in told.err) == (status == 0, status == 1)


def test_an_object_that_is_no_trial_is_not_deleted() -> None:
    api = Api({"metadata": {"generation": 1}})
    api.objects = 1
    trial._delete(api, ("g", "v", "models", "p"), "try")  # type: ignore[arg-type]
    assert api.objects == 1
