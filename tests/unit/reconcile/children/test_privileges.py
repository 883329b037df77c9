"""Which parts of a pod template give pods more than Pod Security's level baseline, and how each is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import SPEC, Cluster

from speculative_operator.domain.platform import EVERY, Privilege
from speculative_operator.domain.spec import Cache, Weights
from speculative_operator.reconcile.children import privileges
from speculative_operator.render import Capabilities


def engine(**container: Any) -> dict[str, Any]:
    return {"containers": [{"name": "engine", **container}]}


def secured(**context: Any) -> dict[str, Any]:
    return engine(securityContext=context)


BEYOND: list[tuple[Privilege, dict[str, Any]]] = [
    (Privilege.HOST_NETWORK, {"hostNetwork": True}),
    (Privilege.HOST_PID, {"hostPID": True}),
    (Privilege.HOST_IPC, {"hostIPC": True}),
    (Privilege.HOST_PATH, {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
    (Privilege.HOST_PATH, {"volumes": [{"name": "weights", "hostPath": {"path": "/var/lib/models"}}]}),
    (Privilege.HOST_PORT, engine(ports=[{"containerPort": 8000, "hostPort": 80}])),
    (Privilege.HOST_PROCESS, secured(windowsOptions={"hostProcess": True})),
    (Privilege.HOST_PROCESS, {"securityContext": {"windowsOptions": {"hostProcess": True}}}),
    (Privilege.PROBED_HOST, engine(readinessProbe={"httpGet": {"host": "169.254.169.254"}})),
    (Privilege.PROBED_HOST, engine(lifecycle={"postStart": {"tcpSocket": {"host": "10.0.0.1", "port": 22}}})),
    (Privilege.PRIVILEGED, secured(privileged=True)),
    (Privilege.PRIVILEGED, {"initContainers": [{"name": "a", "securityContext": {"privileged": True}}]}),
    (Privilege.PRIVILEGED, {"ephemeralContainers": [{"name": "a", "securityContext": {"privileged": True}}]}),
    (Privilege.CAPABILITIES, secured(capabilities={"add": ["SYS_ADMIN"]})),
    (Privilege.CAPABILITIES, secured(capabilities={"add": ["ALL"]})),
    (Privilege.PROC_MOUNT, secured(procMount="Unmasked")),
    (Privilege.SECCOMP, secured(seccompProfile={"type": "Unconfined"})),
    (Privilege.SECCOMP, {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    (Privilege.APP_ARMOR, secured(appArmorProfile={"type": "Unconfined"})),
    (Privilege.SE_LINUX, secured(seLinuxOptions={"type": "spc_t"})),
    (Privilege.SE_LINUX, {"securityContext": {"seLinuxOptions": {"user": "system_u"}}}),
    (Privilege.SYSCTLS, {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}),
    (Privilege.SERVICE_ACCOUNT, {"serviceAccountName": "deployer"}),
    (Privilege.SERVICE_ACCOUNT, {"serviceAccount": "deployer"}),
    (Privilege.TOKEN, {"automountServiceAccountToken": True}),
    (Privilege.TOKEN, {"automountServiceAccountToken": None}),
    (Privilege.TOKEN, {"$patch": "replace", **engine(image="a")}),
    (
        Privilege.TOKEN,
        {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]},
    ),
    (Privilege.OPERATOR_VOLUMES, engine(volumeMounts=[{"name": "weights", "mountPath": "/w"}])),
    (Privilege.OPERATOR_VOLUMES, engine(volumeMounts=[{"mountPath": "/mnt/weights", "readOnly": None}])),
    (Privilege.OPERATOR_VOLUMES, {"initContainers": [{"name": "weights", "image": "mine:1"}]}),
]
WITHIN: list[dict[str, Any]] = [
    {"serviceAccountName": "default", "hostNetwork": False, "shareProcessNamespace": True},
    {"securityContext": {"runAsUser": 0, "runAsNonRoot": False, "supplementalGroups": [44, 109]}},
    {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}},
    {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "60"}]}},
    {"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}},
    {"volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "mine"}}]},
    {"volumes": [{"name": "all", "projected": {"sources": [{"secret": {"name": "a"}}]}}]},
    {"priorityClassName": "high", "tolerations": [{"operator": "Exists"}], "runtimeClassName": "nvidia"},
    engine(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "any", "key": "a"}}}]),
    engine(resources={"requests": {"memory": "64Gi"}}, startupProbe={"failureThreshold": 99}),
    secured(capabilities={"add": ["CHOWN"], "drop": []}, allowPrivilegeEscalation=True),
    {"containers": [{"name": "sidecar", "image": "a", "ports": [{"containerPort": 9000}]}]},
]


def world(pod: Any, allowed: tuple[str, ...] = (), **more: Any) -> Any:
    spec = replace(SPEC, template={"spec": pod}, **more)
    return Cluster(spec=spec, capabilities=Capabilities(template_privileges=allowed)).snapshot()


@pytest.mark.parametrize(("privilege", "pod"), BEYOND, ids=lambda value: str(value)[:60])
def test_each_is_refused_by_its_name_and_allowed_by_it(privilege: Privilege, pod: dict[str, Any]) -> None:
    (condition,) = privileges.refusals(world(pod))
    assert condition.reason == "SpecInvalid"
    assert condition.message.startswith("spec.template.spec.")
    for word in (f"add {privilege} to the setting SPECULATIVE_TEMPLATE_PRIVILEGES", "remove it"):
        assert word in condition.message
    assert privileges.refusals(world(pod, (privilege.value,))) == ()
    assert privileges.refusals(world(pod, (EVERY,))) == ()
    others = tuple(one.value for one in Privilege if one is not privilege)
    assert privileges.refusals(world(pod, others)) == (condition,)


def test_every_privilege_has_an_example() -> None:
    assert {privilege for privilege, _ in BEYOND} == set(Privilege)


@pytest.mark.parametrize("pod", WITHIN, ids=lambda pod: next(iter(pod)))
def test_what_the_level_baseline_admits_is_not_refused(pod: dict[str, Any]) -> None:
    assert privileges.refusals(world(pod)) == ()


def test_an_annotation_that_takes_the_profile_away() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/engine"
    spec = replace(SPEC, template={"metadata": {"annotations": {key: "unconfined"}}})
    (condition,) = privileges.refusals(Cluster(spec=spec).snapshot())
    assert key in condition.message


@pytest.mark.parametrize("odd", [7, "x", [1], {"a": 1}, [{"name": "engine", "securityContext": [], "ports": {"a": 1}}]])
def test_odd_templates_are_read_without_a_failure(odd: Any) -> None:
    for part in ("containers", "volumes", "securityContext", "hostNetwork"):
        privileges.refusals(world({part: odd}))
    privileges.refusals(world(odd))
    privileges.refusals(world({"containers": [{"name": "engine", "image": 1.5}]}))


def test_a_folder_of_the_node_is_one_of_those_allowed_or_below() -> None:
    weights = Weights(cache=Cache(node_path="/mnt/models"))
    spec = replace(SPEC, weights=weights)

    def told(*folders: str) -> tuple[str, ...]:
        able = Capabilities(node_folders=folders)
        return tuple(one.message for one in privileges.refusals(Cluster(spec=spec, capabilities=able).snapshot()))

    assert told("/mnt") == told("/mnt/models") == told("/data", "/mnt/models") == ()
    (message,) = told("/mnt/model", "/mnt/models/deeper")
    assert (
        "nodePath is /mnt/models, which is in none of the folders allowed (/mnt/model, /mnt/models/deeper)" in message
    )
    assert "SPECULATIVE_NODE_FOLDERS" in message
    assert len(told()) == 1, "by none allowed none is meant"


def mounting(**mount: Any) -> list[dict[str, Any]]:
    return [{"name": "a", "volumeMounts": [{"mountPath": "/w", **mount}]}]


@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
@pytest.mark.parametrize("name", ["weights", "cache", "claim-0", "payload", "table", None])
@pytest.mark.parametrize("read_only", [None, False, "true"])
def test_no_container_of_a_template_writes_to_what_the_operator_mounts(kind: str, name: Any, read_only: Any) -> None:
    (found,) = privileges.refusals(world({kind: mounting(name=name, readOnly=read_only)}))
    assert f"spec.template.spec.{kind}[a].volumeMounts[/w].name is" in found.message
    assert "readOnly: true" in found.message
    assert privileges.refusals(world({kind: mounting(name=name, readOnly=True)})) == ()


def test_volumes_of_its_own_are_its_own() -> None:
    own = {"volumes": [{"name": "mine", "emptyDir": {}}], "containers": mounting(name="mine")}
    assert privileges.refusals(world(own)) == ()
    directive = {"$patch": "delete", "name": "weights"}
    assert privileges.refusals(world({"containers": mounting(**directive)})) == ()


@pytest.mark.parametrize(
    "more",
    [{"image": "mine:1"}, {"command": ["sh"]}, {"args": []}, {"env": [{"name": "PYTHONPATH", "value": "/tmp"}]}],
)
@pytest.mark.parametrize("name", ["weights", "weights-hold"])
def test_nor_is_a_container_of_the_operator_made_another_program(name: str, more: dict[str, Any]) -> None:
    (found,) = privileges.refusals(world({"initContainers": [{"name": name, **more}]}))
    assert f"spec.initContainers[{name}].{next(iter(more))}" in found.message
    sized = {"name": name, "resources": {"requests": {"cpu": "1"}}}
    assert privileges.refusals(world({"initContainers": [sized]})) == ()
    assert privileges.refusals(world({"containers": [{"name": name, **more}]})) == (), "a container beside the engine"


def test_nor_reached_by_its_processes_where_it_writes_to_the_node() -> None:
    shared = {"shareProcessNamespace": True}
    assert privileges.refusals(world(shared)) == ()
    spec = replace(SPEC, template={"spec": shared}, weights=Weights(cache=Cache(node_path="/mnt/models")))
    able = Capabilities(node_folders=("/mnt",))
    (found,) = privileges.refusals(Cluster(spec=spec, capabilities=able).snapshot())
    assert "spec.shareProcessNamespace is true" in found.message


def test_what_the_operator_renders_by_itself_is_no_privilege() -> None:
    cluster = Cluster(spec=SPEC)
    cluster.settle()
    assert [
        one for one in cluster.snapshot().workload.privileges if one.privilege is not Privilege.OPERATOR_VOLUMES
    ] == []
