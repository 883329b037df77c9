"""`speculator: {auto: true}` on the whole way: rows in a ConfigMap, a hub, Jobs, pods, and what never moves a pick."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until, with_hub

from demo import hub, pairs, scene
from speculative_operator.domain import names

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

HEADER = "verifier,speculator,method,k,source,date"
DRAFT_ROW = f"tiny/{hub.TARGET},tiny/{hub.DRAFT},draft_model,3,our wiki,2026-08"
HEAD_ROW = f"tiny/{hub.TARGET},tiny/{hub.HEAD},eagle3,2,our wiki,2026-09"
MISFIT_ROW = f"tiny/{hub.DRAFT},tiny/{hub.HEAD},eagle3,2,our wiki,2026-09"
CONFIG_MAP = "speculative-operator-catalogue"
CLAIM = {"size": "1Gi", "accessMode": "ReadWriteOnce"}
EMPTY = {"emptyDir": {"sizeLimit": "1Gi"}}


@pytest.fixture(scope="module")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Cluster, operator that inspects pairs, and a hub."""
    # How often a kubelet looks at ConfigMaps is its own affair, and a minute of waiting each time.
    quick = {"syncSeconds": 1}
    with with_hub("auto", tmp_path_factory.mktemp("stage"), node_settings=quick) as (stage, _):
        yield stage


def deploy(stage: Stage, name: str, verifier: str = hub.TARGET, cache: dict[str, Any] | None = None) -> None:
    body = pairs.manifest(name, f"hf://tiny/{verifier}", hub.DRAFT)
    body["spec"]["weights"]["cache"] = cache
    body["spec"] |= {"speculator": {"auto": True}, "speculation": {"maxSpeculativeTokens": 3}}
    stage.apply(body)


def rows(stage: Stage, *lines: str) -> None:
    """The user's rows, as `kubectl create configmap --from-file` makes them."""
    meta = {"name": CONFIG_MAP, "namespace": scene.OPERATOR_NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"catalogue.csv": "\n".join(lines)}}
    stage.cluster.kubectl("apply", "-f", "-", input=json.dumps(body))


def picked(stage: Stage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (stage.get("specdep", name).get("status") or {}).get("picked") or {}
    return found


def warned(stage: Stage, name: str) -> list[str]:
    return [one["reason"] for one in (stage.get("specdep", name).get("status") or {}).get("warnings") or ()]


def engine(stage: Stage, name: str) -> tuple[str, str]:
    """(uid of the pod, its arguments)."""
    (pod,) = stage.pods(name)
    return pod["metadata"]["uid"], " ".join(pod["spec"]["containers"][0]["args"])


def loads(stage: Stage, name: str) -> list[str]:
    """Models that the arguments of an object's pod name by the folders they lie in, of those that the status names."""
    pair = stage.get("specdep", name)["status"]["pair"]
    sides = [side for side in ("verifier", "speculator") if f"{side}Pin" in pair]
    return [side for side in sides if f"/models/{pair[f'{side}Pin']['key']}" in engine(stage, name)[1]]


def test_rows_of_the_users_own_serve_new_objects_and_move_no_old_one(stage: Stage) -> None:
    # Nothing is known: the verifier serves alone, and is told about.
    deploy(stage, "old", cache=CLAIM)
    scene.wait_ready(stage.cluster, "old", LONG)
    told = stage.condition("old", "PairCompatible")
    assert (told["status"], told["reason"]) == ("Unknown", "NoSpeculatorKnown")
    assert "add your own row to the catalogue" in told["message"]
    alone = engine(stage, "old")
    assert "--speculative-config" not in alone[1]
    assert loads(stage, "old") == ["verifier"], "from the claim"

    # A ConfigMap that comes while the operator runs: new objects are picked for, the old one is told.
    rows(stage, HEADER, DRAFT_ROW, MISFIT_ROW)
    until(lambda: "BetterSpeculatorKnown" in warned(stage, "old"), LONG)
    deploy(stage, "new", cache=EMPTY)
    deploy(stage, "misfit", verifier=hub.DRAFT)  # for the test below: it comes up meanwhile
    scene.wait_ready(stage.cluster, "new", LONG)
    pick = picked(stage, "new")
    assert (pick["speculator"], pick["method"], pick["k"]) == (f"hf://tiny/{hub.DRAFT}", "draft_model", 3)
    assert "source: our wiki" in pick["reason"]
    drafting = engine(stage, "new")
    assert "--speculative-config" in drafting[1]
    assert loads(stage, "new") == ["verifier", "speculator"], "from the pod's own folder"
    assert stage.condition("new", "PairCompatible")["status"] == "True"
    describe = ("describe", "specdep", "new", "-n", NAMESPACE)
    # events are written in their own time, the pods may be there before
    until(lambda: "SpeculatorPicked" in stage.cluster.kubectl(*describe).stdout, LONG)
    described = stage.cluster.kubectl(*describe).stdout
    assert f"picked tiny/{hub.DRAFT} (draft_model): made for tiny/{hub.TARGET}" in described
    assert engine(stage, "old") == alone

    # Another row goes first, the operator restarts: nobody moves.
    rows(stage, HEADER, HEAD_ROW, DRAFT_ROW, MISFIT_ROW)
    stage.cluster.kubectl("rollout", "restart", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    stage.cluster.kubectl("rollout", "status", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE, f"--timeout={LONG:.0f}s")
    until(lambda: "BetterSpeculatorKnown" in warned(stage, "new"), LONG)
    assert (engine(stage, "old"), engine(stage, "new")) == (alone, drafting)
    assert picked(stage, "new") == pick

    # Bad rows are told and change nothing.
    rows(stage, HEADER, HEAD_ROW.replace(",2,", ",0,"))

    def logged() -> bool:
        # The pod before may be chosen while it goes away.
        log = stage.cluster.kubectl("logs", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE, check=False).stdout
        return "catalogue.csv, row 2, column k: '0': write a whole number from 1 to 64" in log

    until(logged, LONG)
    assert (engine(stage, "old"), engine(stage, "new")) == (alone, drafting)
    rows(stage, HEADER, HEAD_ROW, DRAFT_ROW, MISFIT_ROW)
    until(lambda: "BetterSpeculatorKnown" in warned(stage, "new"), LONG)

    # Asked for, the pick is made anew.
    stage.cluster.kubectl("annotate", "specdep", "old", "-n", NAMESPACE, f"{names.ANNOTATION_REPIN}=1")
    until(lambda: picked(stage, "old").get("method") == "eagle3", LONG)

    def all_draft() -> bool:
        found = [" ".join(pod["spec"]["containers"][0]["args"]) for pod in stage.pods("old")]
        return bool(found) and all("--speculative-config" in args for args in found)

    until(all_draft, LONG)
    until(lambda: stage.get("specdep", "old")["status"]["pair"]["speculator"] == f"hf://tiny/{hub.HEAD}", LONG)
    until(lambda: [scene.is_ready(pod) for pod in stage.pods("old")] == [True], LONG)
    assert loads(stage, "old") == ["verifier", "speculator"]
    assert engine(stage, "new") == drafting


def test_a_pick_that_does_not_fit_is_passed_over_and_the_verifier_serves(stage: Stage) -> None:
    rows(stage, HEADER, DRAFT_ROW, MISFIT_ROW)
    deploy(stage, "misfit", verifier=hub.DRAFT)
    scene.wait_ready(stage.cluster, "misfit", LONG)
    pick = picked(stage, "misfit")
    assert "method" not in pick
    (over,) = pick["passedOver"]
    assert over["speculator"] == f"hf://tiny/{hub.HEAD}"
    told = stage.condition("misfit", "PairCompatible")
    assert told["reason"] == "NoSpeculatorKnown"
    assert over["why"][:40] in told["message"]
    assert "--speculative-config" not in engine(stage, "misfit")[1]
