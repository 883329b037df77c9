"""Manifests by what they must hold, and that no user's text can change their shape."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.worlds import plain

from speculative_operator.domain import names
from speculative_operator.domain.resolved import ResolvedEngine, ResolvedSpec
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    Method,
    ModelSource,
    Scheme,
    Speculator,
    Verifier,
)
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import EngineContainer, ImageMount, PvcMount
from speculative_operator.render import Capabilities, RenderError, RenderInput, payload, render, table_config
from speculative_operator.render.metadata import label_value, manifest_hash, pair_hash
from speculative_operator.render.podspec import table_name

SPEC = ResolvedSpec(
    name="demo",
    namespace="models",
    uid="uid-1",
    generation=3,
    verifier=Verifier(ModelSource(Scheme.HF, "Qwen/Qwen3-8B"), "demo"),
    speculator=Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B")),
    replicas=2,
)
CONTAINER = EngineContainer(
    image="vllm/vllm-openai:v0.32.0",
    args=("Qwen/Qwen3-8B", "--speculative-config", '{"method": "draft_model"}'),
    env=({"name": "HOME", "value": "/var/cache/speculative"},),
    startup_seconds=901,
    shutdown_seconds=120,
    user=2000,
    payload=True,
)
INPUT = RenderInput(SPEC, CONTAINER, KTable.constant(3, 256), 1, strategy={"type": "Recreate"})
STATIC = replace(INPUT, container=replace(CONTAINER, payload=False))
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def by_kind(inp: RenderInput = INPUT) -> dict[tuple[str, str], dict[str, Any]]:
    return {(child["kind"], child["metadata"]["name"]): child for child in render(inp)}


TABLE = table_name(SPEC)


def deployment(inp: RenderInput = INPUT) -> dict[str, Any]:
    return by_kind(inp)["Deployment", "demo"]


def engine(inp: RenderInput = INPUT) -> dict[str, Any]:
    container: dict[str, Any] = deployment(inp)["spec"]["template"]["spec"]["containers"][0]
    return container


def test_children_of_a_live_object() -> None:
    assert [(kind, plain(name)) for kind, name in by_kind()] == [
        ("ConfigMap", "demo-table"),
        ("Deployment", "demo"),
        ("Service", "demo"),
        ("NetworkPolicy", "demo"),
        ("PodDisruptionBudget", "demo"),
    ]


def test_without_payload_no_config_maps() -> None:
    assert {kind for kind, _ in by_kind(STATIC)} == {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}


def test_the_users_own_image_is_not_looked_for_in_a_mirror() -> None:
    mirrored = replace(INPUT, capabilities=Capabilities(engine_registry="mirror.example/hub"))
    assert engine(mirrored)["image"] == "mirror.example/hub/vllm/vllm-openai:v0.32.0"
    own = replace(SPEC, engine=ResolvedEngine(image="registry.example/vllm:1"))
    container = replace(CONTAINER, image="registry.example/vllm:1")
    assert engine(replace(mirrored, spec=own, container=container))["image"] == "registry.example/vllm:1"


def test_engines_listen_on_the_family_that_pods_have_first() -> None:
    """A kernel without IPv6 would not let them listen at "::"; an address in a user's argument stays."""
    args = ("--host", "0.0.0.0", "--port", "8000", "--other", "0.0.0.0")
    shown = replace(INPUT, container=replace(CONTAINER, args=args))
    assert engine(shown)["args"] == list(args)
    on_ipv6 = replace(shown, capabilities=Capabilities(ipv6=True))
    assert engine(on_ipv6)["args"] == ["--host", "::", *args[2:]]


def test_pod_monitor_only_where_served() -> None:
    assert ("PodMonitor", "demo") in by_kind(replace(INPUT, capabilities=Capabilities(pod_monitor=True)))


@pytest.mark.parametrize(("replicas", "owned", "expected"), [(1, True, False), (2, True, True), (1, False, True)])
def test_a_budget_where_it_can_matter(replicas: int, owned: bool, expected: bool) -> None:
    children = by_kind(replace(INPUT, spec=replace(SPEC, replicas=replicas), owns_replicas=owned))
    assert (("PodDisruptionBudget", "demo") in children) is expected


def test_every_child_is_owned_labelled_and_hashed() -> None:
    for child in render(replace(INPUT, capabilities=Capabilities(pod_monitor=True))):
        meta = child["metadata"]
        assert meta["namespace"] == "models"
        assert names.selector("demo").items() <= meta["labels"].items()
        (owner,) = meta["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("uid-1", True, True)
        assert meta["annotations"][names.ANNOTATION_HASH] == manifest_hash(child)


def test_the_hash_tells_any_change() -> None:
    before = deployment()["metadata"]["annotations"][names.ANNOTATION_HASH]
    changed = replace(INPUT, container=replace(CONTAINER, args=(*CONTAINER.args, "--seed=1")))
    assert deployment(changed)["metadata"]["annotations"][names.ANNOTATION_HASH] != before


def test_selector_is_the_stable_one() -> None:
    other = replace(SPEC, engine=ResolvedEngine(version="0.33.0"), verifier=Verifier(SPEC.verifier.source, "other"))
    selectors = [deployment(replace(INPUT, spec=spec))["spec"]["selector"] for spec in (SPEC, other)]
    assert selectors[0] == selectors[1] == {"matchLabels": names.selector("demo")}


def test_a_live_table_leaves_the_deployment_alone() -> None:
    other = replace(INPUT, table=KTable.from_rows([[1, 16, 5], [17, 256, 0]]), table_version=9)
    assert deployment(other) == deployment()
    assert by_kind(other)["ConfigMap", TABLE]["data"] == {"table.json": '{"version":9,"rows":[[1,16,5],[17,256,0]]}'}


def test_a_table_in_the_template_is_noted_on_the_deployment() -> None:
    annotations = deployment(STATIC)["metadata"]["annotations"]
    content = json.loads(annotations[names.ANNOTATION_TABLE])
    assert (content["version"], content["rows"], len(content["digest"])) == (1, [[1, 256, 3]], 16)
    assert names.ANNOTATION_TABLE not in deployment()["metadata"]["annotations"]
    assert names.ANNOTATION_TABLE not in deployment(STATIC)["spec"]["template"]["metadata"]["annotations"]


def test_table_config_is_the_child() -> None:
    assert table_config(SPEC, TABLE, KTable.constant(3, 256), 1) == by_kind()["ConfigMap", TABLE]


def test_the_table_is_mounted_as_a_directory() -> None:
    mounts = {mount["name"]: mount for mount in engine()["volumeMounts"]}
    assert mounts["table"] == {"name": "table", "mountPath": names.TABLE_MOUNT, "readOnly": True}
    assert mounts["payload"]["mountPath"] == names.PAYLOAD_MOUNT
    volumes = {volume["name"]: volume for volume in deployment()["spec"]["template"]["spec"]["volumes"]}
    assert volumes["payload"]["configMap"] == {"name": payload.name()}
    assert not any("subPath" in mount for mount in mounts.values())


def test_pods_stop_gently() -> None:
    spec = deployment()["spec"]["template"]["spec"]
    assert engine()["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
    assert spec["terminationGracePeriodSeconds"] == 10 + 120 + 10


def test_startup_budget_is_the_engines() -> None:
    probe = engine()["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 901
    assert probe["periodSeconds"] <= 2
    assert deployment()["spec"]["progressDeadlineSeconds"] > 901


def test_pods_pass_restricted_pod_security() -> None:
    spec = deployment()["spec"]["template"]["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert engine()["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize(("assigns", "image", "user"), [(True, "", None), (False, "", 2000), (False, "mine:1", None)])
def test_a_user_id_only_for_the_stock_image_where_none_is_assigned(assigns: bool, image: str, user: int | None) -> None:
    spec = replace(SPEC, engine=ResolvedEngine(image=image))
    inp = replace(INPUT, spec=spec, capabilities=Capabilities(assigns_uids=assigns))
    context = deployment(inp)["spec"]["template"]["spec"]["securityContext"]
    assert context.get("runAsUser") == user
    assert context.get("runAsGroup") == (0 if user else None)
    assert "fsGroup" not in context


def test_shared_memory_where_workers_need_it() -> None:
    volumes = deployment(replace(INPUT, container=replace(CONTAINER, shared_memory=True)))["spec"]["template"]["spec"]
    assert {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in volumes["volumes"]
    assert not any(volume["name"] == "dshm" for volume in deployment()["spec"]["template"]["spec"]["volumes"])


def test_accelerators_are_the_only_limit() -> None:
    spec = replace(SPEC, accelerator=AcceleratorRequest("amd.com/gpu", per_replica=4))
    assert engine(replace(INPUT, spec=spec))["resources"]["limits"] == {"amd.com/gpu": "4"}


def test_weights_from_claims_and_images() -> None:
    container = replace(
        CONTAINER,
        pvc_mounts=(PvcMount("weights", "/mnt/models/weights"), PvcMount("drafts", "/mnt/models/drafts")),
        image_mounts=(ImageMount("quay.io/models/v:1", "/mnt/models/verifier"),),
    )
    volumes = deployment(replace(INPUT, container=container))["spec"]["template"]["spec"]["volumes"]
    assert [volume for volume in volumes if "persistentVolumeClaim" in volume] == [
        {"name": f"claim-{place}", "persistentVolumeClaim": {"claimName": name, "readOnly": True}}
        for place, name in enumerate(("weights", "drafts"))
    ]
    assert {"name": "image-0", "image": {"reference": "quay.io/models/v:1", "pullPolicy": "IfNotPresent"}} in volumes
    mounts = engine(replace(INPUT, container=container))["volumeMounts"]
    assert {"name": "claim-1", "mountPath": "/mnt/models/drafts", "readOnly": True} in mounts


def test_replicas_left_to_an_autoscaler() -> None:
    assert deployment()["spec"]["replicas"] == 2
    assert "replicas" not in deployment(replace(INPUT, owns_replicas=False))["spec"]


def test_environment_names_occur_once() -> None:
    env = ({"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"})
    assert engine(replace(INPUT, container=replace(CONTAINER, env=env)))["env"] == [
        {"name": "A", "value": "3"},
        {"name": "B", "value": "2"},
    ]


def test_overrides_come_last() -> None:
    template = {"spec": {"containers": [{"name": "engine", "args": ["mine"]}], "priorityClassName": "gold"}}
    manifest = deployment(replace(INPUT, spec=replace(SPEC, template=template)))
    assert manifest["spec"]["template"]["spec"]["priorityClassName"] == "gold"
    assert manifest["spec"]["template"]["spec"]["containers"][0]["args"] == ["mine"]
    assert manifest["metadata"]["annotations"][names.ANNOTATION_HASH] == manifest_hash(manifest)


@pytest.mark.parametrize("labels", [{names.LABEL_DEPLOYMENT: "other"}, {names.LABEL_MANAGED_BY: None}, None])
def test_overrides_cannot_hide_the_pods(labels: Mapping[str, Any] | None) -> None:
    with pytest.raises(RenderError, match=r"spec\.template\.metadata\.labels"):
        render(replace(INPUT, spec=replace(SPEC, template={"metadata": {"labels": labels}})))


def test_pair_hash_changes_with_either_model() -> None:
    def pinned(**change: Any) -> str:
        return pair_hash(replace(SPEC, **change))

    hashes = {
        pinned(),
        pinned(verifier=Verifier(ModelSource(Scheme.HF, "Qwen/Qwen3-8B", "v2"), "demo")),
        pinned(speculator=Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-1.7B"))),
        pinned(speculator=Speculator(Method.EAGLE3, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B"))),
        pinned(speculator=None),
    }
    assert len(hashes) == 5
    assert pinned(replicas=7, verifier=Verifier(SPEC.verifier.source, "renamed")) == pinned()


@given(text=st.text(max_size=100))
def test_label_values_are_legal(text: str) -> None:
    value = label_value(text)
    assert len(value) <= 63
    assert value == "" or (value[0].isalnum() and value[-1].isalnum() and value.isascii())


def test_rendering_is_repeatable() -> None:
    assert render(INPUT) == render(INPUT)


@settings(deadline=None, max_examples=60)
@given(
    argument=TEXTS,
    value=TEXTS,
    name=TEXTS,
    label=TEXTS.filter(lambda text: text[0] != "$"),
    content=TEXTS,
    override=TEXTS,
)
def test_any_text_in_any_field_round_trips(
    argument: str, value: str, name: str, label: str, content: str, override: str
) -> None:
    container = replace(
        CONTAINER,
        image=argument,
        args=(argument,),
        env=({"name": name, "value": value},),
        command=(value,),
        files={"f.json": content},
        metrics_path=argument,
    )
    template = {"metadata": {"annotations": {label: override}}, "spec": {"serviceAccountName": override}}
    spec = replace(SPEC, name=name, namespace=value, uid=argument, template=template)
    inp = replace(INPUT, spec=spec, container=container, strategy={"type": value})
    children = {child["kind"] + child["metadata"]["name"]: child for child in render(inp)}
    manifest = children["Deployment" + name]
    pod = manifest["spec"]["template"]
    found = pod["spec"]["containers"][0]
    assert (found["image"], found["args"], found["env"]) == (argument, [argument], [{"name": name, "value": value}])
    assert pod["metadata"]["annotations"][label] == override
    assert found["command"] == [value]
    if label != f"{names.ANNOTATION_FILE}f.json":
        assert pod["metadata"]["annotations"][f"{names.ANNOTATION_FILE}f.json"] == content
    assert pod["spec"]["serviceAccountName"] == override
    assert manifest["spec"]["strategy"] == {"type": value}
    assert manifest["metadata"]["namespace"] == value
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == argument


def test_a_candidates_pods_serve_for_the_object_and_its_own_children_choose_them_alone() -> None:
    of, candidate = (
        replace(SPEC, name=name, candidate_of=measured_for)
        for name, measured_for in ((SPEC.name, ""), (names.candidate(SPEC.name), SPEC.name))
    )
    capable = Capabilities(pod_monitor=True)
    stable, other = (
        {one["kind"]: one for one in render(replace(INPUT, spec=spec, capabilities=capable))}
        for spec in (of, candidate)
    )
    pods = [one["Deployment"]["spec"]["template"]["metadata"]["labels"] for one in (stable, other)]

    def chosen(selector: dict[str, str]) -> list[bool]:
        return [selector.items() <= labels.items() for labels in pods]

    assert chosen(stable["Service"]["spec"]["selector"]) == [True, True]
    assert chosen(stable["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]) == [True, True]
    assert chosen(other["Service"]["spec"]["selector"]) == [False, True]
    assert chosen(other["Deployment"]["spec"]["selector"]["matchLabels"]) == [False, True]
    assert "PodMonitor" in stable
    assert "PodMonitor" not in other, "its pods would be scraped twice"
