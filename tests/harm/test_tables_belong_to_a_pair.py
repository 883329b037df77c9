"""Harm: an edit of the pair hands the new pair's untested table to the pods that still serve, with nobody watching."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.releases import with_template
from tests.unit.reconcile.worlds import KEPT, SPEC, Cluster, observed, plain, pod, settled, window

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.actions import DeleteChild, PokePod
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.spec import Method, Mode, ModelSource, OffPolicy, Scheme, Speculation, Speculator
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.table import tables
from speculative_operator.reconcile.tick import Outcome
from speculative_operator.render import payload, table_config
from speculative_operator.render.podspec import table_name


def drawn(revision: str) -> Speculator:
    return Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B", revision))


def tuned(k: int, **change: Any) -> Cluster:
    """A cluster at rest whose table has that K at every load."""
    cluster = settled(**{"spec": KEPT, **change})
    table = KTable.constant(k, 256)
    version = cluster.status["speculation"]["tableVersion"] + 7
    cluster.status["speculation"] |= {"table": table.rows(), "tableVersion": version, "tableText": str(table)}
    cluster.forget()
    cluster.settle()
    assert cluster.table == {"version": version, "rows": table.rows()}
    return cluster


def stall(cluster: Cluster, ticks: int = 2) -> None:
    """The Deployment takes the new template, and no pod of it comes up: the old ones serve on."""
    for _ in range(ticks):
        cluster.tick()
    deployment = cluster.children["Deployment", "demo"]
    deployment["status"] |= {
        "observedGeneration": deployment["metadata"]["generation"], "replicas": 3, "updatedReplicas": 1,
        "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
    }  # fmt: skip


def read_by(cluster: Cluster, config: tuple[str, str]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(cluster.children[config]["data"]["table.json"])
    return content


def useless(cluster: Cluster, k: int) -> Observation:
    """Every pod that is there drafts `k` tokens, of which next to none are accepted."""
    windows = {one["metadata"]["name"]: window(cluster.now, 120, k, survival=0.01) for one in cluster.pods}
    return Observation(cluster.now, windows)


def pokes(outcome: Outcome) -> dict[str, str]:
    return {one.pod: one.value for one in outcome.actions if isinstance(one, PokePod)}


def test_pods_of_the_old_pair_never_read_the_table_of_the_new_one() -> None:
    cluster = tuned(0)
    old, before = cluster.config("table"), read_by(cluster, cluster.config("table"))
    cluster.edit(speculator=drawn("other"))
    for _ in range(5):
        outcome = cluster.tick()
        assert pokes(outcome) == {}, "no pod of the old pair is told of another table"
        assert read_by(cluster, old) == before
    new = cluster.config("table")
    assert new != old
    assert read_by(cluster, new)["rows"] != before["rows"], "what the prior says of the new pair"
    Status.model_validate(cluster.status)


def test_an_hour_of_useless_drafts_in_a_stalled_rollout_never_leaves_the_old_table_as_it_is() -> None:
    cluster = tuned(3)
    old = cluster.config("table")
    before = read_by(cluster, old)
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    new = cluster.config("table")
    untouched, told = read_by(cluster, new), set()
    for _ in range(360):
        k = KTable.from_rows(read_by(cluster, old)["rows"]).k_at(120)
        outcome = cluster.tick(useless(cluster, k))
        told |= {(event.type, event.reason) for event in outcome.events}
        Status.model_validate(cluster.status)
    after = read_by(cluster, old)
    assert KTable.from_rows(after["rows"]).k_at(120) == 0
    assert after["version"] > before["version"]
    assert read_by(cluster, new) == untouched, "the new pair's table rests on no window of the old one's"
    assert all(one["metadata"]["annotations"][names.ANNOTATION_POKE] == str(after["version"]) for one in cluster.pods)
    (entry,) = cluster.status["leaving"]
    assert (entry["table"], entry["tableVersion"]) == (after["rows"], after["version"])
    assert any(reason.value == entry["reason"] for _, reason in told), "somebody is told"


def test_a_restart_of_the_operator_never_gives_the_old_pods_another_table() -> None:
    cluster = tuned(3)
    old = cluster.config("table")
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    for _ in range(30):
        cluster.tick(useless(cluster, KTable.from_rows(read_by(cluster, old)["rows"]).k_at(120)))
    cut = read_by(cluster, old)
    for wiped in (False, True):
        cluster.forget()
        if wiped:
            cluster.status.pop("leaving")
        cluster.tick()
        assert read_by(cluster, old) == cut
        assert cluster.status["leaving"][0]["tableVersion"] == cut["version"]


def test_a_table_of_old_pods_that_was_edited_by_hand_never_stays_so() -> None:
    cluster = tuned(3)
    old = cluster.config("table")
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    before = read_by(cluster, old)
    cluster.children[old]["data"]["table.json"] = '{"version":99,"rows":[[1,256,8]]}'
    cluster.tick()
    assert read_by(cluster, old) == before
    del cluster.children[old]
    cluster.tick()
    assert read_by(cluster, old) == before


def test_the_new_pairs_table_never_rests_on_windows_of_old_pods() -> None:
    """One pod of each pair is ready. The old one's drafts are useless, the new one's are good."""
    cluster = tuned(3)
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    labels = cluster.children["Deployment", "demo"]["spec"]["template"]["metadata"]["labels"]
    cluster.pods = [cluster.pods[0], pod("demo-new", {**labels, "template": "t9"})]
    old = cluster.config("table")[1]
    for _ in range(60):
        k = KTable.from_rows(cluster.status["speculation"]["table"]).k_at(8)
        seen = {
            cluster.pods[0]["metadata"]["name"]: window(cluster.now, 120, 3, survival=0.01),
            "demo-new": window(cluster.now, 8, k, survival=0.9),
        }
        cluster.tick(Observation(cluster.now, seen))
    assert KTable.from_rows(cluster.status["speculation"]["table"]).k_at(8) >= 3
    assert cluster.status["speculation"]["acceptanceLength"] > "2.5"
    assert cluster.config("table")[1] == old


def test_taking_the_edit_back_never_starts_the_old_pods_from_the_prior() -> None:
    cluster = tuned(0)
    old = cluster.config("table")
    before = read_by(cluster, old)
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    cluster.edit(speculator=SPEC.speculator)
    for _ in range(3):
        cluster.tick()
    assert cluster.config("table") == old
    assert read_by(cluster, old)["rows"] == before["rows"]
    assert read_by(cluster, old)["version"] >= before["version"]
    assert "leaving" not in cluster.status


def test_a_second_edit_never_forgets_the_pods_of_the_first_pair() -> None:
    cluster = tuned(0)
    old = cluster.config("table")
    before = read_by(cluster, old)
    for revision in ("other", "third", "fourth"):
        cluster.edit(speculator=drawn(revision))
        stall(cluster)
        assert read_by(cluster, old) == before
        assert [one["configMap"] for one in cluster.status["leaving"]] == [old[1]]


def test_what_old_pods_mount_is_never_deleted_while_they_are_there() -> None:
    cluster = tuned(3)
    old = {cluster.config("table"), cluster.config("payload")}
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    for _ in range(3):
        outcome = cluster.tick()
        assert not any(isinstance(one, DeleteChild) for one in outcome.actions)
    assert old <= set(cluster.children)
    last = deepcopy(cluster.pods[0])
    last["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    last["spec"] = {"volumes": [{"name": "table", "configMap": {"name": next(n for _, n in old if "-table-" in n)}}]}
    cluster.roll()
    cluster.pods.append(last)
    cluster.tick()
    assert old <= set(cluster.children), "a pod on its way out still reads them"
    cluster.pods.pop()
    cluster.tick()
    assert {name for _, name in old if "-table-" in name}.isdisjoint(name for _, name in cluster.children)
    assert "leaving" not in cluster.status
    assert cluster.look().actions == ()


def former(cluster: Cluster) -> None:
    """Objects as another release made them: another name of the table, and another content of the plug-in."""
    template = cluster.children["Deployment", "demo"]["spec"]["template"]
    mounted = {one["name"]: one.get("configMap") for one in template["spec"]["volumes"]}
    table = cluster.children.pop(cluster.config("table"))
    data = json.loads(table["data"]["table.json"])
    made = table_config(cluster.spec, "demo-table", KTable.from_rows(data["rows"]), data["version"])
    table |= {"data": made["data"], "metadata": table["metadata"] | made["metadata"]}
    old = deepcopy(cluster.children.pop(cluster.config("payload")))
    old["data"].pop("speculative_blocks.py")
    old["metadata"]["name"] = payload.name_of(old["data"])
    for volume, content in (("table", table), ("payload", old)):
        mounted[volume]["name"] = content["metadata"]["name"]
        cluster.children["ConfigMap", content["metadata"]["name"]] = content
    annotations = cluster.children["Deployment", "demo"]["metadata"]["annotations"]
    record = with_template(annotations[names.ANNOTATION_RESOLVED], "0123456789abcdef", cluster.spec.uid)
    annotations[names.ANNOTATION_RESOLVED] = record
    annotations[names.ANNOTATION_HASH] = "of another release"
    cluster.applied, cluster.upgraded = {}, True


def configs(cluster: Cluster) -> set[str]:
    return {name for kind, name in cluster.children if kind == "ConfigMap"}


def test_pods_of_another_release_are_neither_replaced_nor_cut_off_from_their_table() -> None:
    cluster = settled()
    former(cluster)
    before = configs(cluster)
    assert cluster.config("payload")[1] != payload.name()
    made = cluster.templates
    cluster.forget()
    for _ in range(60):
        cluster.tick(observed(cluster, batch=200, survival=0.2))
    assert cluster.templates == made
    assert configs(cluster) == before, "nor is the content of this release put beside it"
    assert cluster.table["version"] > 1, "tuned on by the ConfigMap that they read"
    poked = {one["metadata"]["annotations"].get(names.ANNOTATION_POKE) for one in cluster.pods}
    assert poked == {str(cluster.table["version"])}


def test_pods_of_another_release_keep_their_table_while_the_next_pair_comes_up() -> None:
    cluster = settled(spec=KEPT)
    former(cluster)
    cluster.forget()
    cluster.tick()
    before = cluster.table
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    assert cluster.config("table")[1] == table_name(cluster.spec)
    assert read_by(cluster, ("ConfigMap", "demo-table")) == before
    assert cluster.status["leaving"][0]["configMap"] == "demo-table"
    cluster.roll()
    cluster.settle()
    assert "demo-table" not in configs(cluster)
    assert {plain(one) for one in configs(cluster)} == {"demo-table", "speculative-payload"}
    assert cluster.config("payload")[1] == payload.name()


def test_pods_that_serve_on_keep_getting_tables_when_an_edit_is_taken_back() -> None:
    cluster = settled()
    former(cluster)
    cluster.forget()
    cluster.tick()
    wanted = cluster.spec.speculator
    for one in cluster.pods:
        one["spec"] = deepcopy(cluster.children["Deployment", "demo"]["spec"]["template"]["spec"])
    cluster.edit(speculator=drawn("other"))
    stall(cluster)
    cluster.edit(speculator=wanted)
    for _ in range(3):
        cluster.tick()
    assert cluster.config("table")[1] == "demo-table", "what the pods that serve read"


def test_two_pairs_that_read_one_table_are_never_tuned_against_each_other() -> None:
    """Pods of both labels mount one ConfigMap."""
    cluster = settled()
    former(cluster)
    cluster.forget()
    cluster.tick()
    cluster.edit(speculator=drawn("other"))
    label = tables.label_of(cluster.spec)
    template = cluster.children["Deployment", "demo"]["spec"]["template"]
    template["metadata"]["labels"][names.LABEL_PAIR] = label
    old = {one["metadata"]["labels"][names.LABEL_PAIR] for one in cluster.pods}
    assert old != {label}
    assert tables.read_leaving(cluster.snapshot(), {label}) == ()


def test_content_of_the_payload_is_never_changed_below_pods() -> None:
    """Another content is another name, and the ConfigMap cannot be edited."""
    cluster = settled()
    slot = cluster.config("payload")
    assert cluster.children[slot]["immutable"] is True
    assert cluster.table["version"] == 1
    assert "immutable" not in cluster.children[cluster.config("table")]


REMOVABLE = replace(SPEC, speculation=Speculation(off_policy=OffPolicy.REMOVE))


def test_removing_the_drafter_never_leaves_its_last_pods_unwatched(tuner: Any) -> None:
    cluster = settled(spec=REMOVABLE)
    old, table = cluster.config("table"), KTable.from_rows(cluster.status["speculation"]["table"])
    tuner.remove(table)
    cluster.tick(observed(cluster))
    asked: list[Mapping[str, Any]] = list(tuner.told)
    cluster.tick(observed(cluster))
    assert len(tuner.told) == len(asked) + 1
    (entry,) = cluster.status["leaving"]
    assert (entry["configMap"], entry["table"]) == (old[1], table.rows())
    tuner.wishes.append({"table": KTable.constant(0, 256), "changed": True})
    for _ in range(2):
        cluster.tick(observed(cluster))
    assert KTable.from_rows(read_by(cluster, old)["rows"]) == KTable.constant(0, 256)
    cluster.forget()
    cluster.tick()
    assert cluster.status["speculation"]["speculatorRemoved"], "a table of the last pods is no word on those to come"
    assert cluster.status["speculation"]["table"] == table.rows()


@pytest.mark.parametrize("mode", [Mode.RECOMMEND, Mode.STATIC, Mode.DISABLED])
def test_tables_of_old_pods_are_never_tuned_where_the_user_has_said_so(mode: Mode) -> None:
    cluster = tuned(3)
    old = cluster.config("table")
    before = read_by(cluster, old)
    speculation = Speculation(mode=mode, num_speculative_tokens=3 if mode is Mode.STATIC else None)
    cluster.edit(speculator=drawn("other"), speculation=speculation)
    stall(cluster)
    for _ in range(60):
        cluster.tick(useless(cluster, 3))
    assert read_by(cluster, old) == before
