"""The text of the objects' metrics: valid, grouped by family, gone with the object and with what is too old."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from speculative_operator.reconcile.observed.series import Sample
from speculative_operator.shell.telemetry import ObjectMetrics

STEADY: list[Sample] = [("object_k", (("requests", "1"),), 4.0), ("object_k", (("requests", "2"),), 3.0)]
MEASURED: list[Sample] = [("object_running_requests", (), 0.1 + 0.2)]
A, B = ("models", "a"), ("models", "b")


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.metrics = ObjectMetrics("x", lambda: self.now)

    def samples(self) -> dict[tuple[str, ...], float]:
        families = list(text_string_to_metric_families(self.metrics.render().decode()))
        names = [one.name for one in families]
        assert len(names) == len(set(names)), "lines of a family are not apart"
        every = (one for family in families for one in family.samples)
        return {(one.name, *one.labels.values()): one.value for one in every}


def test_every_line_names_its_object() -> None:
    rig = Rig()
    for key in (B, A):
        rig.metrics.put(key, STEADY, MEASURED, 10.0)
    rig.metrics.count(A, "FasterTable")
    rig.metrics.count(A, "FasterTable")
    rig.metrics.count(A, "SlowerThanOff")
    assert rig.samples() == {
        ("x_object_k", "models", "a", "1"): 4.0,
        ("x_object_k", "models", "a", "2"): 3.0,
        ("x_object_k", "models", "b", "1"): 4.0,
        ("x_object_k", "models", "b", "2"): 3.0,
        ("x_object_running_requests", "models", "a"): 0.1 + 0.2,
        ("x_object_running_requests", "models", "b"): 0.1 + 0.2,
        ("x_object_decisions_total", "models", "a", "FasterTable"): 2.0,
        ("x_object_decisions_total", "models", "a", "SlowerThanOff"): 1.0,
    }


def test_what_is_too_old_is_gone_although_nobody_visits() -> None:
    rig = Rig()
    rig.metrics.put(A, STEADY, MEASURED, 10.0)
    rig.now = 10.0
    assert {key[0] for key in rig.samples()} == {"x_object_k"}


def test_an_object_that_is_gone_leaves_nothing() -> None:
    rig = Rig()
    rig.metrics.put(A, STEADY, MEASURED, 10.0)
    rig.metrics.count(A, "FasterTable")
    rig.metrics.forget(A)
    rig.metrics.forget(B)
    assert rig.metrics.render() == b""


def test_a_gauge_that_is_not_told_again_is_gone() -> None:
    rig = Rig()
    rig.metrics.put(A, STEADY, MEASURED, 10.0)
    rig.metrics.put(A, STEADY[:1], [], 10.0)
    assert set(rig.samples()) == {("x_object_k", "models", "a", "1")}


def test_no_value_spoils_the_page_of_all_objects() -> None:
    rig = Rig()
    rig.metrics.put(A, [("object_state", (("state", 'a"b\\c\nd'),), 1.0)], [], 10.0)
    rig.metrics.put(B, STEADY, MEASURED, 10.0)
    assert rig.samples()[("x_object_state", "models", "a", 'a"b\\c\nd')] == 1.0
    assert len(rig.samples()) == 4
