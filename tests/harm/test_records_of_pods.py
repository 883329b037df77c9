"""The harm: the record of what pods were made of is lost, spoiled or forged, and the operator replaces pods for it.

Whatever is no record counts as none: pods stay, and the operator writes the record anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.objects import SPECS, at_rest
from tests.unit.reconcile.paired import LOOKING, PAIRED, Paired, advance, serving
from tests.unit.reconcile.worlds import Cluster, settled, template

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action
from speculative_operator.render import resolved
from speculative_operator.render.metadata import digest

DEPLOYMENT = ("Deployment", "demo")


def annotations_of(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.children[DEPLOYMENT]["metadata"]["annotations"]
    return found


def is_recorded(cluster: Cluster) -> bool:
    return resolved.read(cluster.children[DEPLOYMENT], cluster.spec.uid) is not None


def restart(cluster: Cluster) -> None:
    """Another process of another release: another image of its own, nothing in memory, and the status is lost."""
    cluster.forget()
    cluster.status, cluster.notes = {}, None
    cluster.capabilities = replace(cluster.capabilities, job_image="registry.test/operator:9.9")
    if isinstance(cluster, Paired):
        advance(cluster)


@pytest.mark.parametrize("name", SPECS)
def test_the_record_suffices(name: str) -> None:
    cluster = at_rest(name)
    pods, made = deepcopy(template(cluster.children[DEPLOYMENT])), cluster.templates
    assert is_recorded(cluster)
    restart(cluster)
    cluster.settle(12)
    assert cluster.templates == made
    assert template(cluster.children[DEPLOYMENT]) == pods


def edit(change: dict[str, Any]) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | change)


def of_another(text: str) -> str:
    content = {key: value for key, value in json.loads(text).items() if key not in ("format", "digest")}
    return resolved.seal(content | {"startupSeconds": 7200}, "uid-of-another")


def newer(text: str) -> str:
    content = {key: value for key, value in json.loads(text).items() if key not in ("format", "digest")}
    return json.dumps({**content, "format": 2, "digest": digest(["uid-1", 2, content], 16)})


SPOILED: dict[str, Callable[[str], str | None]] = {
    "absent": lambda _: None,
    "empty": lambda _: "",
    "truncated": lambda text: text[: len(text) // 2],
    "no object": lambda _: "[1]",
    "nested": lambda _: "[" * 20_000,
    "budget by hand": edit({"startupSeconds": 43_200}),
    "models by hand": edit({"models": []}),
    "types": edit({"bytes": "many", "models": 3, "strategy": None}),
    "of another object": of_another,
    "of a newer release": newer,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
@pytest.mark.parametrize("restarted", [False, True], ids=["at rest", "restarted"])
def test_a_record_that_is_none_replaces_no_pod_and_is_written_anew(
    spoil: Callable[[str], str | None], *, restarted: bool
) -> None:
    cluster = serving(spec=PAIRED)
    pods, text = deepcopy(template(cluster.children[DEPLOYMENT])), annotations_of(cluster)[names.ANNOTATION_RESOLVED]
    spoiled = spoil(text)
    del annotations_of(cluster)[names.ANNOTATION_RESOLVED]
    if spoiled is not None:
        annotations_of(cluster)[names.ANNOTATION_RESOLVED] = spoiled
    assert not is_recorded(cluster)
    if restarted:
        restart(cluster)
    made = cluster.templates
    cluster.settle(12)
    assert cluster.templates == made
    assert template(cluster.children[DEPLOYMENT]) == pods
    assert annotations_of(cluster)[names.ANNOTATION_RESOLVED] == text
    assert cluster.look().actions == ()


class Stripped(Cluster):
    """Another writer takes an annotation away after every write."""

    name = ""

    def carry_out(self, action: Action) -> None:
        super().carry_out(action)
        if DEPLOYMENT in self.children:
            annotations_of(self).pop(self.name, None)


def writes(name: str) -> list[int]:
    cluster = settled()
    made = cluster.templates
    other = Stripped(**{one: getattr(cluster, one) for one in cluster.__dataclass_fields__})
    other.name = name
    annotations_of(other).pop(name)
    counts = [len(other.tick().actions) for _ in range(4)]
    assert other.templates == made
    return counts


def test_who_strips_the_record_causes_the_writes_of_any_other_annotation() -> None:
    assert writes(names.ANNOTATION_RESOLVED) == writes(names.ANNOTATION_MADE_OF)


def test_a_record_outlasts_what_the_api_server_made_of_the_template() -> None:
    """The inference compares with the template that runs: one that a webhook has changed tells it nothing."""
    cluster = Paired(spec=PAIRED, capabilities=LOOKING)
    advance(cluster)
    cluster.settle()
    start = {"pod": "a", "started": "2026-11-22T10:00:00Z", "seconds": 1800}
    cluster.status["startup"] = {"loadSeconds": 1800, "starts": [start]}
    cluster.edit(engine=replace(cluster.spec.engine, args=("--seed=1",)))
    cluster.settle()
    found = resolved.read(cluster.children[DEPLOYMENT], cluster.spec.uid)
    assert found is not None
    assert found.startup_seconds == 5400, "three times what was measured"
    made = cluster.templates
    restart(cluster)
    template(cluster.children[DEPLOYMENT])["metadata"]["annotations"] = {"by": "a webhook"}
    cluster.tick()
    now = resolved.read(cluster.children[DEPLOYMENT], cluster.spec.uid)
    assert now is not None
    assert now.startup_seconds == 5400
    assert template(cluster.children[DEPLOYMENT])["spec"]["containers"][0]["startupProbe"]["failureThreshold"] == 2700
    assert cluster.templates <= made + 1, "the repair of the webhook's change"
