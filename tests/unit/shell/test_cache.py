"""What the cache holds, whom it wakes, and that late news never undoes newer ones."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.render.test_environment import JSON
from tests.unit.shell.scene import replica_set

from speculative_operator.domain import names
from speculative_operator.shell.bodies import _Copies, is_ready, owner_key, trim
from speculative_operator.shell.cache import Cache

KEY = ("ns", "gemma")


def owner(version: int = 1, generation: int = 1, uid: str = "o", **status: Any) -> dict[str, Any]:
    meta = {"name": "gemma", "namespace": "ns", "uid": uid, "resourceVersion": str(version), "generation": generation}
    body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": {"g": generation}}
    return {**body, "status": status} if status else body


def child(version: int = 1, kind: str = "Service", uid: str = "c", name: str = "gemma", **spec: Any) -> dict[str, Any]:
    reference = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "gemma", "uid": "o"}
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": uid,
        "resourceVersion": str(version),
        "ownerReferences": [reference],
    }
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec}


def pod(version: int = 1, ready: bool = True, uid: str = "p", **meta: Any) -> dict[str, Any]:
    labels = {names.LABEL_DEPLOYMENT: "gemma", "pod-template-hash": "5d"}
    base: dict[str, Any] = {"name": "gemma-1", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    base |= {"labels": labels, "ownerReferences": [replica_set()]}
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**base, **meta}, "status": status}


def test_a_snapshot_holds_what_belongs_together() -> None:
    cache = Cache()
    assert cache.put(owner()) == KEY
    assert cache.put(child()) == KEY
    assert cache.put(child(kind="Deployment", uid="d")) == KEY
    assert cache.put(pod()) == KEY
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert set(snapshot.children) == {("Service", "gemma"), ("Deployment", "gemma")}
    assert [body["metadata"]["name"] for body in snapshot.pods] == ["gemma-1"]
    assert cache.snapshot(("ns", "other")) is None


def test_a_snapshot_does_not_change_afterwards() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(child())
    before = cache.snapshot(KEY)
    assert before is not None
    cache.put(child(2, changed=True))
    cache.remove(child(kind="Service"))
    assert before.children["Service", "gemma"]["spec"] == {}


def test_our_own_status_is_no_news_and_a_new_spec_is() -> None:
    cache = Cache()
    cache.put(owner(1))
    assert cache.put(owner(2, k="4")) is None
    assert cache.put(owner(3, generation=2, k="4")) == KEY
    annotated = owner(4, generation=2, k="4")
    annotated["metadata"]["annotations"] = {names.ANNOTATION_PAUSED: "true"}
    assert cache.put(annotated) == KEY


def test_a_new_version_without_a_difference_wakes_nobody() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(child(1, a=1))
    assert cache.put(child(2, a=1)) is None
    assert cache.put(child(3, a=2)) == KEY


def test_an_annotation_of_a_deployment_does_not_make_its_status_one_of_other_pods() -> None:
    """The API server raises the generation of a Deployment with each, and its controller looks a moment later."""

    def seen(version: int, generation: int, observed: int, **spec: Any) -> bool:
        body = child(version, kind="Deployment", **spec)
        body["metadata"] |= {"generation": generation, "annotations": {"theirs": str(version)}}
        body["status"] = {"observedGeneration": observed}
        cache.put(body)
        snapshot = cache.snapshot(KEY)
        assert snapshot is not None
        held = snapshot.children["Deployment", "gemma"]
        return bool(held["status"]["observedGeneration"] >= held["metadata"]["generation"])

    cache = Cache()
    cache.put(owner())
    assert not seen(1, 2, 1, image="a"), "the first that is known of it"
    assert seen(2, 2, 2, image="a")
    assert seen(3, 3, 2, image="a")
    assert seen(4, 4, 2, image="a")
    assert not seen(5, 5, 4, image="b")
    assert not seen(6, 6, 4, image="b"), "nor is it with an annotation"
    assert seen(7, 6, 6, image="b")


def test_a_recreated_object_replaces_the_old_one_and_survives_its_late_deletion() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(child(5, uid="old"))
    assert cache.put(child(7, uid="new")) == KEY
    assert cache.remove(child(6, uid="old")) is None
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert snapshot.children["Service", "gemma"]["metadata"]["uid"] == "new"


def test_deleting_wakes_the_owner_and_deleting_the_unknown_does_not() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(child())
    assert cache.remove(child()) == KEY
    assert cache.remove(child()) is None
    assert cache.remove(owner()) == KEY
    assert len(cache) == 0


def test_an_object_that_changes_its_owner_leaves_the_old_one() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(pod(1))
    cache.put(pod(2, labels={names.LABEL_DEPLOYMENT: "other"}))
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert snapshot.pods == ()
    assert cache.objects_of("Pod") == {}, "nor is it kept for an object that nobody knows"


def test_only_objects_with_a_ready_pod_are_observed() -> None:
    cache = Cache()
    cache.put(pod(1))
    assert cache.ready_objects() == {}, "a pod without its object"
    cache.put(owner())
    cache.put(pod(1))
    assert cache.ready_objects() == {"ns": [KEY]}
    cache.put(pod(2, ready=False))
    assert cache.ready_objects() == {}


def test_a_terminating_pod_is_not_ready() -> None:
    assert is_ready(pod())
    assert not is_ready(pod(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert not is_ready({"kind": "Pod", "metadata": {}})


def test_whose_an_object_is() -> None:
    assert owner_key(child()) == KEY
    assert owner_key(pod()) == KEY
    orphan = child()
    orphan["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x"}]
    assert owner_key(orphan) is None
    assert owner_key({"kind": "Secret", "metadata": {"name": "x", "namespace": "ns"}}) is None


def test_of_a_group_the_leader_serves() -> None:
    cache = Cache()
    found = owner()
    cache.put({**found, "spec": {**found["spec"], "target": "LeaderWorkerSet"}})
    for uid, made_by in (("l", "gemma-group"), ("w", "gemma-group-0"), ("o", "gemma"), ("x", "gemma-group-x")):
        one = pod(uid=uid)
        reference = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": made_by,
            "uid": made_by,
            "controller": True,
        }
        one["metadata"] |= {"name": uid, "ownerReferences": [reference]}
        cache.put(one)
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert [one["metadata"]["uid"] for one in snapshot.pods] == ["l"]


# -- Jobs, their pods, and claims


def job(version: int = 1, uid: str = "j", name: str = "gemma-fetch", **status: Any) -> dict[str, Any]:
    made = child(version, "Job", uid, name, backoffLimit=3, template={"spec": {"containers": [{"name": "weights"}]}})
    return {**made, "status": status}


def worker(version: int = 1, phase: str = "Running", **meta: Any) -> dict[str, Any]:
    """The pod of a Job, with every label that a serving pod has."""
    found = pod(version, uid="w", name="gemma-fetch-x", **meta)
    found["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "gemma-fetch", "uid": "j"}
    ]
    return {**found, "spec": {"containers": []}, "status": {**found["status"], "phase": phase, "podIP": "10.0.0.1"}}


def claim(version: int = 1, ours: bool = True, **meta: Any) -> dict[str, Any]:
    labels = {names.LABEL_MANAGED_BY: names.OPERATOR} if ours else {}
    base = {"name": "weights", "namespace": "ns", "uid": "v", "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**base, **meta}}


def test_pods_of_jobs_are_never_serving_pods_and_wake_whom_the_job_is_for() -> None:
    cache = Cache()
    cache.put(owner())
    assert cache.put(worker()) is None, "its Job is not known yet"
    assert cache.put(job()) == KEY
    assert cache.put(worker(2, "Succeeded")) == KEY
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert snapshot.pods == ()
    assert [one["status"]["phase"] for one in snapshot.workers["gemma-fetch"]] == ["Succeeded"]
    assert cache.ready_objects() == {}, "a ready pod of a Job has no metrics"
    assert set(cache.objects_of("Pod")) == {"w"}
    assert cache.remove(worker(2)) == KEY
    assert cache.objects_of("Pod") == {}


def test_a_label_alone_keeps_a_pod_from_serving_and_makes_it_no_jobs_pod() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(job())
    labels = {**pod()["metadata"]["labels"], names.LABEL_JOB: "fetch", "batch.kubernetes.io/job-name": "gemma-fetch"}
    assert cache.put(pod(uid="w", labels=labels)) is None
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert (snapshot.pods, snapshot.workers["gemma-fetch"]) == ((), ())
    adrift = {**pod()["metadata"]["labels"], names.LABEL_JOB: "fetch"}
    assert cache.put(pod(uid="a", labels=adrift)) is None
    assert cache.objects_of("Pod") == {}


def test_when_the_job_is_gone_its_pods_wake_nobody() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(job())
    cache.put(worker())
    assert cache.remove(job()) == KEY
    assert cache.put(worker(2, "Failed")) is None
    assert cache.remove(worker(2)) is None
    assert cache.objects_of("Pod") == {}


def test_what_nobody_reads_of_jobs_and_their_pods_is_not_kept_and_is_no_news() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(job(active=1))
    cache.put(worker())
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert snapshot.children["Job", "gemma-fetch"]["spec"] == {"backoffLimit": 3}
    assert snapshot.children["Job", "gemma-fetch"]["status"] == {"active": 1}
    (kept,) = snapshot.workers["gemma-fetch"]
    assert "spec" not in kept
    assert kept["status"].keys() == {"phase", "conditions"}
    assert cache.put(job(2, active=1)) is None
    assert cache.put(worker(2)) is None
    assert cache.put(job(3, active=0)) == KEY


def test_a_claim_belongs_to_all_objects_of_its_namespace_and_wakes_none() -> None:
    cache = Cache()
    cache.put(owner())
    other = owner(uid="o2")
    other["metadata"]["name"] = "other"
    cache.put(other)
    assert cache.put({**claim(), "spec": {"resources": {}}, "data": {"file": "text"}}) is None
    (held,) = cache.objects_of("PersistentVolumeClaim").values()
    assert (held.get("spec"), held["data"]) == (None, {"file": ""}), "of what is shared only names are read"
    for key in (KEY, ("ns", "other")):
        snapshot = cache.snapshot(key)
        assert snapshot is not None
        assert set(snapshot.claims) == {"weights"}
        assert snapshot.children == {}
    assert set(cache.objects_of("PersistentVolumeClaim")) == {"v"}
    assert cache.remove(claim()) is None
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert snapshot.claims == {}
    cache.put(claim(ours=False))
    assert cache.objects_of("PersistentVolumeClaim") == {}, "somebody else's"


def test_folders_that_other_objects_use_are_kept_from_being_tidied_away() -> None:
    cache = Cache()
    for name, folder in (("gemma", "aaaa"), ("other", "bbbb"), ("third", "bbbb")):
        body = owner(uid=name, pair={"previous": [folder]})
        body["metadata"]["name"] = name
        cache.put(body)
    assert cache.folders_in_use(KEY) == {"bbbb"}
    assert cache.folders_in_use(("ns", "other")) == {"aaaa", "bbbb"}
    assert cache.folders_in_use(("elsewhere", "gemma")) == frozenset()
    moved = owner(2, uid="gemma", pair={})
    cache.put(moved)
    assert cache.folders_in_use(("ns", "other")) == {"bbbb"}
    for name in ("other", "third"):
        body = owner(uid=name)
        body["metadata"]["name"] = name
        cache.remove(body)
    assert cache.folders_in_use(KEY) == frozenset()


def loading(folder: str) -> dict[str, Any]:
    """Of a pod template, or of a pod."""
    words = ["--model", f"/mnt/models/.speculative-cache/models/{folder}"]
    return {"containers": [{"name": "engine", "args": words}]}


def test_folders_that_pods_load_from_are_kept_whatever_status_says() -> None:
    """Status is wiped, hand-edited, or written by another release; the object may be gone before its pods are."""
    cache, used, old, new = Cache(), "0123456789abcdef", "1" * 16, "2" * 16
    cache.put(owner())
    cache.put({**pod(), "spec": loading(used)})
    cache.put({**child(kind="Deployment", uid="d", template={"spec": loading(old)})})
    kept = {used, old}
    assert cache.folders_in_use(("ns", "other")) == cache.folders_in_use(KEY) == kept
    assert cache.folders_in_use(("elsewhere", "other")) == frozenset()
    cache.put({**pod(2, ready=False), "spec": loading(used)})
    cache.put({**child(2, kind="Deployment", uid="d", template={"spec": loading(new)})})
    assert cache.folders_in_use(KEY) == {used, new}
    cache.remove(owner())
    assert cache.folders_in_use(("ns", "other")) == {used, new}, "its pods still end"
    cache.remove(pod())
    cache.put({**child(3, kind="Deployment", uid="another")})
    assert cache.folders_in_use(("ns", "other")) == frozenset()


def test_folders_in_files_of_the_engine_count_too() -> None:
    cache, used = Cache(), "0123456789abcdef"
    told = {f"{names.ANNOTATION_FILE}engine.yaml": f"speculative_model: /mnt/models/.speculative-cache/models/{used}\n"}
    template = {"metadata": {"annotations": told}, "spec": {"containers": []}}
    cache.put(child(kind="Deployment", uid="d", template=template))
    assert cache.folders_in_use(("ns", "other")) == {used}


def test_managed_fields_are_dropped_but_for_who_scales() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put({**pod(), "metadata": {**pod()["metadata"], "managedFields": [{"manager": "kubelet"}]}})
    scaling = {"manager": "keda", "subresource": "scale"}
    cache.put({**child(), "metadata": {**child()["metadata"], "managedFields": [{"manager": "me"}, scaling]}})
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert "managedFields" not in snapshot.pods[0]["metadata"]
    assert snapshot.children["Service", "gemma"]["metadata"]["managedFields"] == [scaling]


def test_equal_texts_are_held_once() -> None:
    cache = Cache()
    cache.put(owner())
    for name in ("a", "b"):
        cache.put({**child(kind="ConfigMap", uid=name, name=name), "data": {"payload.py": "".join(["x"] * 5000)}})
    one, two = cache.objects_of("ConfigMap").values()
    assert one["data"]["payload.py"] is two["data"]["payload.py"]


@given(JSON)
def test_bodies_with_equal_parts_hold_them_once_and_stay_what_they_are(spec: Any) -> None:
    cache, written = Cache(), json.dumps({**child(uid="a", name="a"), "spec": spec})
    written_spec = json.dumps(spec)
    cache.put(owner())
    for uid in ("a", "b"):
        body = json.loads(written)
        cache.put({**body, "metadata": {**body["metadata"], "uid": uid, "name": uid}})
    one, two = cache.objects_of("Service").values()
    assert one["spec"] == two["spec"] == spec
    assert json.dumps(one["spec"]) == written_spec, "1 is not True, nor 1.0"
    assert one["spec"] is two["spec"] or not isinstance(spec, str | dict | list)


def test_what_is_shared_is_held_within_a_budget() -> None:
    copies = _Copies(2000)
    first = copies.copy_of({"large": "x" * 1000})
    assert copies.copy_of({"large": "x" * 1000}) is first
    for number in range(100):
        copies.copy_of({"other": f"{number:0500d}"})
        assert sum(len(key) for key in copies._known) < 20
    assert copies.copy_of({"large": "x" * 1000}) is not first


def test_a_later_version_shares_what_is_equal_with_what_a_write_returned() -> None:
    cache = Cache()
    cache.put(owner())
    written = trim(child(kind="Deployment", uid="d", template={"spec": {"containers": [{"name": "engine"}]}}))
    cache.put(written)
    told: Any = deepcopy(written)
    told["metadata"]["resourceVersion"], told["status"] = "9999", {"replicas": 1}
    cache.put(told)
    (held,) = cache.objects_of("Deployment").values()
    assert held["spec"] is written["spec"]
    assert held["metadata"]["ownerReferences"] is written["metadata"]["ownerReferences"]
    assert (held["status"], held["metadata"]["resourceVersion"]) == ({"replicas": 1}, "9999")


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.sampled_from("ab")), max_size=30))
def test_in_any_order_the_newest_version_of_a_uid_stays(events: list[tuple[bool, int, str]]) -> None:
    cache = Cache()
    cache.put(owner())
    newest: dict[str, int] = {}
    for put, version, uid in events:
        if put:
            cache.put(child(version, uid=uid, name=uid))
            newest[uid] = max(newest.get(uid, 0), version)
        else:
            cache.remove(child(version, uid=uid, name=uid))
            newest.pop(uid, None)
    held = {uid: int(body["metadata"]["resourceVersion"]) for uid, body in cache.objects_of("Service").items()}
    assert held == newest


def test_where_versions_are_no_numbers_what_comes_last_counts() -> None:
    cache = Cache()
    for version in ("c", "b"):
        body = owner(uid="o")
        body["metadata"] |= {"resourceVersion": version, "labels": {"at": version}}
        assert cache.put(body) == KEY


def test_pods_are_read_at_the_port_that_they_name() -> None:
    cache, there = Cache(), pod()
    there["spec"] = {"containers": [{"name": "x"}, {"ports": [{"name": "http", "containerPort": 8080}]}]}
    there["status"]["podIP"] = "10.0.0.1"
    cache.put(owner())
    cache.put(there)
    (found,) = cache.addresses([KEY]).values()
    assert (found, found.port) == (("10.0.0.1",), 8080)


def test_a_pod_of_another_namespace_that_names_a_job_is_none_of_its_pods() -> None:
    cache = Cache()
    cache.put(owner())
    cache.put(job())
    assert cache.put(worker(namespace="elsewhere")) is None
    assert cache.objects_of("Pod") == {}
