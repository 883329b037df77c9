"""Nothing looks well while nobody watches: an operator that is gone, figures that are old, a fault behind AllReady."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
import yaml
from tests.unit.cli.test_cluster_commands import FakeCluster, stored
from tests.unit.cli.test_doctor import healthy

from speculative_operator.api.convert import to_domain
from speculative_operator.cli import doctor, explain, get, main, status
from speculative_operator.cli.cluster import Cluster, age_of
from speculative_operator.cli.commands import UnseenError, format_time
from speculative_operator.cli.diagnosis import reason_shown
from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.pairs import unknown_accelerator

NOW = 1_800_001_600.0


def lease(since: float, lasts: int = 15) -> dict[str, Any]:
    renewed = f"{format_time(NOW - since).replace(' ', 'T')}.000000Z"
    return {"spec": {"holderIdentity": "one", "renewTime": renewed, "leaseDurationSeconds": lasts}}


class Leases:
    """The API of a cluster that has these Leases."""

    def __init__(self, *found: Mapping[str, Any], everywhere: bool = True) -> None:
        self.found, self.everywhere = found, everywhere

    def list_cluster_custom_object(self, *_: str, **more: Any) -> dict[str, Any]:
        if not self.everywhere:
            raise UnseenError("you may not list leases")
        assert more["field_selector"] == f"metadata.name={names.OPERATOR}"
        return {"items": list(self.found)}

    def get_namespaced_custom_object(self, *path: str, **_: Any) -> Mapping[str, Any]:
        assert path[2:] == (names.INSTALLED_IN, "leases", names.OPERATOR)
        if not self.found:
            raise UnseenError("you may not get leases")
        return self.found[0]


def silent(api: Leases, monkeypatch: pytest.MonkeyPatch) -> float | None:
    at = Cluster.__new__(Cluster)
    at._api = cast(Any, api)
    monkeypatch.setattr(Cluster, "_call", lambda _, ask, *what, **more: ask(*what, **more))
    return at.operator_silent(NOW)


@pytest.mark.parametrize(
    ("leases", "everywhere", "seconds"),
    [
        ((lease(5),), True, None),
        ((lease(89),), True, None),  # clocks differ
        ((lease(600),), True, 600.0),
        ((lease(600, lasts=1),), False, 600.0),  # given back, and nobody took it
        ((lease(600), lease(3)), True, None),  # two operators, each for its namespaces
        ((), True, None),
        ((), False, None),
        (({"spec": {}},), True, None),
        (({"spec": {"renewTime": "soon"}},), True, None),
    ],
)
def test_an_operator_is_silent_when_no_lease_was_renewed(
    leases: tuple[Mapping[str, Any], ...], everywhere: bool, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = silent(Leases(*leases, everywhere=everywhere), monkeypatch)
    assert found == (pytest.approx(seconds, abs=1.0) if seconds else None)


def test_commands_say_that_the_operator_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(stored("tuned"))
    cluster.silent = 3600.0
    for module, words in ((get, ["get"]), (status, ["status", "demo"]), (explain, ["explain", "demo"])):
        monkeypatch.setattr(module, "Cluster", cluster)
        assert main.main(words) == 0
        out = capsys.readouterr()
        assert "no operator has renewed its Lease for 60m" in out.out + out.err, words
        assert "speculative doctor" in out.out + out.err
    for form in ("json", "yaml"):
        assert main.main(["explain", "demo", "-o", form]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["problems"][0]["reason"] == "OperatorSilent"


def test_doctor_does_not_call_well_what_nobody_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def results(cluster: FakeCluster) -> set[str]:
        monkeypatch.setattr(doctor, "Cluster", cluster)
        main.main(["doctor", "-o", "json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return {one["result"] for one in checks if one["check"] in doctor.BY_STATUS}

    assert results(healthy()) == {"ok"}
    assert results(healthy(None, **{"operator pods": []})) == {"unknown"}


def test_old_figures_carry_their_age() -> None:
    at = {"observedAt": f"{format_time(NOW).replace(' ', 'T')}Z"}
    assert age_of(at, NOW + 60.0) == "" == age_of({}, NOW) == age_of({"observedAt": "?"}, NOW)
    assert age_of(at, NOW + 720.0) == ", 12m ago"
    body = stored("tuned")
    body["status"]["speculation"].update(at)
    assert any(line.endswith(", 12m ago") for line in status.view(body, (), NOW + 720.0))
    assert ", 12m ago" in next(explain.explanation(body, NOW + 720.0))


def test_a_list_shows_a_fault_before_all_ready() -> None:
    body = stored("tuned")
    assert reason_shown(body) == "AllReady" == get.row(body)[-1]
    body["status"]["warnings"] = [{"reason": "AcceleratorUnknown", "message": "x"}]
    assert reason_shown(body) == "AcceleratorUnknown"
    for one in body["status"]["conditions"]:
        if one["type"] == "MetricsAvailable":
            one.update(status="False", reason="MetricsMissing", message="none")
    assert reason_shown(body) == "MetricsMissing"


def test_an_accelerator_with_a_slip_in_its_name_is_warned_of() -> None:
    """Node labels, data sheets and no name at all are well."""
    spec = to_domain({"metadata": {"name": "a"}, "spec": {"verifier": {"model": "hf://a/b"}}})
    for product in ("", "H100-SXM", "NVIDIA-H100-80GB-HBM3"):
        assert unknown_accelerator(replace(spec, accelerator=replace(spec.accelerator, product=product))) == ()
    (found,) = unknown_accelerator(replace(spec, accelerator=replace(spec.accelerator, product="A1000")))
    assert (found.reason, "'A1000'" in found.message) == (Reason.ACCELERATOR_UNKNOWN, True)
