"""What is seen of a canary: everything that an answer of it needs, as the API server has it now."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.shell.scene import manifest, owner, pod, replica_set

from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.platform import CanarySeen
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.sources import Canaries

Json = dict[str, Any]
OWN, KEY = ("ns", "stable"), ("ns", "gemma")
SERVES = CanarySeen("gemma", service=True, answering=1)


def stored(body: Json, uid: str) -> Json:
    found = copy.deepcopy(body)
    found["metadata"] |= {"uid": uid, "resourceVersion": "1"}
    return found


def parts() -> dict[str, Json]:
    """A canary that serves."""
    of = stored(owner(), "canary")
    of["status"] = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
    service = stored(manifest(of), "service")
    service["metadata"]["ownerReferences"][0]["controller"] = True
    return {"owner": of, "service": service, "pod": stored(pod(), "pod")}


def runs(found: dict[str, Json], *containers: Any) -> None:
    """The canary's pod has these containers."""
    found["pod"]["spec"] = {"containers": list(containers)}


def engine(model: str) -> Json:
    """An engine's container that answers for `model`."""
    return {"name": "engine", "args": ["x", "--served-model-name", model, "--y"]}


def stable(canary: str = "gemma") -> DeploymentSpec:
    body = stored(owner(name="stable"), "stable")
    body["spec"]["route"] = {"gateway": {"name": "public"}, "canary": {"name": canary, "weight": 10}}
    return to_domain(body)


def seen(change: Callable[[dict[str, Json]], Any]) -> CanarySeen | None:
    cache, found = Cache(), parts()
    change(found)
    for body in found.values():
        cache.put(body)
    return Canaries(cache).look(stable())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: None, SERVES),
        (lambda found: found.pop("owner"), None),
        (lambda found: found["owner"]["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), None),
        (lambda found: found["owner"]["spec"].update(replicas=-1), CanarySeen()),
        (lambda found: found["owner"]["spec"]["verifier"].update(servedName="x"), replace(SERVES, served_name="x")),
        (lambda found: found.pop("service"), replace(SERVES, service=False)),
        (
            lambda found: found["service"]["metadata"]["ownerReferences"][0].update(uid="of another"),
            replace(SERVES, service=False),
        ),
        (lambda found: found["owner"]["metadata"].update(generation=2), SERVES),
        (lambda found: found["owner"].update(status={}), SERVES),
        (lambda found: runs(found, {"name": "side"}, engine("stable")), SERVES),
        (lambda found: runs(found, {"name": "side"}, engine("gemma")), replace(SERVES, answering=0)),
        (lambda found: runs(found, {"args": ["--served-model-name"]}), replace(SERVES, answering=0)),
        (lambda found: runs(found, "absurd", {"args": 3}), SERVES),
        (lambda found: found.update(pod=stored(pod(ready=False), "pod")), replace(SERVES, answering=0)),
        (lambda found: found.pop("pod"), replace(SERVES, answering=0)),
    ],
)
def test_what_a_canary_lacks_is_seen(change: Callable[[dict[str, Json]], Any], expected: CanarySeen | None) -> None:
    found = seen(change)
    assert (found and replace(found, made_of="")) == expected
    assert found is None or bool(found.made_of) is bool(expected and expected.served_name)


def test_what_is_analysed_changes_with_the_spec_and_not_with_replicas_or_status() -> None:
    def made_of(change: Callable[[dict[str, Json]], Any]) -> str:
        found = seen(change)
        assert found is not None
        return found.made_of

    before = made_of(lambda _: None)
    assert made_of(lambda found: found["owner"]["spec"].update(replicas=3)) == before
    assert made_of(lambda found: found["owner"].update(status={})) == before
    assert made_of(lambda found: found["owner"]["spec"]["verifier"].update(maxNumSeqs=8)) != before
    assert made_of(lambda found: found["owner"]["metadata"].update(uid="another")) != before


def test_restarts_and_outputs_that_differ_are_seen() -> None:
    def change(found: dict[str, Json]) -> None:
        found["pod"]["status"]["containerStatuses"] = [{"restartCount": 2}, {"restartCount": "absurd"}, 3]
        found["owner"]["status"]["conditions"].append({"type": "OutputsVerified", "status": "False"})

    found = seen(change)
    assert found is not None
    assert (found.restarts, found.outputs_differ) == (2, True)


def test_who_leads_to_an_object_is_known_from_the_last_look() -> None:
    canaries = Canaries(Cache())
    canaries.look(stable())
    assert list(canaries.leading_to(KEY)) == [OWN]
    canaries.look(stable("other"))
    assert list(canaries.leading_to(KEY)) == []
    canaries.look(stable())
    canaries.look(replace(stable(), route=None))
    assert list(canaries.leading_to(KEY)) == []
    canaries.look(stable())
    canaries.forget(OWN)
    assert list(canaries.leading_to(KEY)) == []


def measured() -> DeploymentSpec:
    body = stored(owner(name="stable"), "stable")
    body["spec"]["speculator"] = {"auto": True, "measure": {}}
    return to_domain(body)


def test_a_candidate_wakes_the_object_that_it_is_measured_for_and_keeps_its_own_pods() -> None:
    cache, key = Cache(), ("ns", "stable-candidate")
    canaries = Canaries(cache)
    assert canaries.candidate(measured()) is None
    assert list(canaries.leading_to(key)) == [OWN]
    one = stored(pod("stable-candidate-5d-1"), "pod")
    one["metadata"]["labels"] |= names.selector("stable-candidate", "stable")
    one["metadata"]["ownerReferences"] = [replica_set("stable-candidate-5d")]
    for body in (stored(owner(name="stable"), "a"), stored(owner(name="stable-candidate"), "b"), one):
        cache.put(body)
    found, stable = canaries.candidate(measured()), cache.snapshot(OWN)
    assert found is not None
    assert stable is not None
    assert [body["metadata"]["name"] for body in found.pods] == ["stable-candidate-5d-1"]
    assert stable.pods == ()
