"""Privileges of a pod template: beyond the level baseline of Pod Security, and on the operator's own volumes.

Read of the running workload by `workload`, and of `spec.template` by `children.privileges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.platform import Privilege
from speculative_operator.domain.reading import at, items, mapping, mappings, text, whole
from speculative_operator.render.podspec import is_rendered

_CAPABILITIES = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
        *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_SE_LINUX = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_SYSCTLS = frozenset(
    {
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
        *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"),
        *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
        "net.ipv4.tcp_keepalive_probes",
    }
)
"""Capabilities, SELinux types and sysctls of the level baseline (Pod Security Standards of Kubernetes 1.36)."""
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_HELPERS = frozenset({names.JOB_CONTAINER, names.HOLD_CONTAINER})
"""Containers of the operator's own, which may write where no other container may."""
_OF_HELPERS = frozenset({"name", "resources", "volumeMounts"})
"""Fields of these containers that a template may set; volumeMounts are looked at like those of others."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One privilege, and where it is asked for."""

    privilege: Privilege
    field: str
    value: str


def privileges_of(template: Mapping[str, Any], *, of_node: bool) -> tuple[Asked, ...]:
    """Every privilege that a pod template has. `of_node`: its pods have a folder of the node from the operator."""
    pod = mapping(template, "spec")
    kinds = ("initContainers", "containers", "ephemeralContainers")
    containers = ((kind, one) for kind in kinds for one in mappings(pod, kind))
    return (
        *_of_pod(pod),
        *_of_volumes(pod),
        *(
            one
            for kind, container in containers
            for one in _of_container(container, f"{kind}[{text(container, 'name')}]")
        ),
        *_of_annotations(mapping(template, "metadata", "annotations")),
        *_of_our_volumes(pod, of_node=of_node),
    )


def _of_our_volumes(pod: Mapping[str, Any], *, of_node: bool) -> Iterator[Asked]:
    """Where the containers of a pod could write to volumes that the operator renders, by a mount or in the place
    of a container of the operator; with a folder of the node also through the processes of that container."""
    if of_node and at(pod, "shareProcessNamespace") is True:
        yield Asked(Privilege.OPERATOR_VOLUMES, "spec.shareProcessNamespace", "true")
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for one in mappings(pod, kind):
            where = f"spec.{kind}[{text(one, 'name')}]"
            for mount in mappings(one, "volumeMounts"):
                name = text(mount, "name")
                if at(mount, "readOnly") is not True and (not name or is_rendered(name)):
                    at_path = f"{where}.volumeMounts[{text(mount, 'mountPath')}].name"
                    yield Asked(Privilege.OPERATOR_VOLUMES, at_path, name or "not set")
            helps = kind == "initContainers" and text(one, "name") in _HELPERS
            for field in sorted(set(one) - _OF_HELPERS) if helps else ():
                yield Asked(Privilege.OPERATOR_VOLUMES, f"{where}.{field}", str(one[field]))


def _of_pod(pod: Mapping[str, Any]) -> Iterator[Asked]:
    for privilege in (Privilege.HOST_NETWORK, Privilege.HOST_PID, Privilege.HOST_IPC):
        if at(pod, privilege.value) is True:
            yield Asked(privilege, f"spec.{privilege}", "true")
    for field in ("serviceAccountName", "serviceAccount"):
        if text(pod, field) not in ("", "default"):
            yield Asked(Privilege.SERVICE_ACCOUNT, f"spec.{field}", text(pod, field))
    if at(pod, "automountServiceAccountToken") is not False:
        yield Asked(Privilege.TOKEN, "spec.automountServiceAccountToken", "not false")
    for sysctl in mappings(pod, "securityContext", "sysctls"):
        if text(sysctl, "name") not in _SYSCTLS:
            yield Asked(Privilege.SYSCTLS, "spec.securityContext.sysctls", text(sysctl, "name"))
    yield from _of_context(mapping(pod, "securityContext"), "spec.securityContext")


def _of_volumes(pod: Mapping[str, Any]) -> Iterator[Asked]:
    for volume in mappings(pod, "volumes"):
        where = f"spec.volumes[{text(volume, 'name')}]"
        if "hostPath" in volume:
            yield Asked(Privilege.HOST_PATH, f"{where}.hostPath.path", text(volume, "hostPath", "path"))
        if any("serviceAccountToken" in one for one in mappings(volume, "projected", "sources")):
            yield Asked(Privilege.TOKEN, f"{where}.projected.sources", "serviceAccountToken")


def _of_container(container: Mapping[str, Any], name: str) -> Iterator[Asked]:
    where, context = f"spec.{name}", mapping(container, "securityContext")
    if at(context, "privileged") is True:
        yield Asked(Privilege.PRIVILEGED, f"{where}.securityContext.privileged", "true")
    for capability in items(context, "capabilities", "add"):
        if capability not in _CAPABILITIES:
            yield Asked(Privilege.CAPABILITIES, f"{where}.securityContext.capabilities.add", str(capability))
    if text(context, "procMount") not in ("", "Default"):
        yield Asked(Privilege.PROC_MOUNT, f"{where}.securityContext.procMount", text(context, "procMount"))
    for port in mappings(container, "ports"):
        if whole(port, "hostPort"):
            yield Asked(Privilege.HOST_PORT, f"{where}.ports", f"hostPort {whole(port, 'hostPort')}")
    for hook in ("startupProbe", "readinessProbe", "livenessProbe"):
        yield from _of_hook(mapping(container, hook), f"{where}.{hook}")
    for hook in ("postStart", "preStop"):
        yield from _of_hook(mapping(container, "lifecycle", hook), f"{where}.lifecycle.{hook}")
    yield from _of_context(context, f"{where}.securityContext")


def _of_hook(hook: Mapping[str, Any], where: str) -> Iterator[Asked]:
    for kind in ("httpGet", "tcpSocket"):
        if text(hook, kind, "host"):
            yield Asked(Privilege.PROBED_HOST, f"{where}.{kind}.host", text(hook, kind, "host"))


def _of_context(context: Mapping[str, Any], where: str) -> Iterator[Asked]:
    """The privileges in a securityContext that pods and containers both may have."""
    for privilege in (Privilege.SECCOMP, Privilege.APP_ARMOR):
        if text(context, privilege.value, "type") == "Unconfined":
            yield Asked(privilege, f"{where}.{privilege}.type", "Unconfined")
    options = mapping(context, "seLinuxOptions")
    if text(options, "type") not in _SE_LINUX or text(options, "user") or text(options, "role"):
        yield Asked(
            Privilege.SE_LINUX, f"{where}.seLinuxOptions", ", ".join(f"{k} {v}" for k, v in sorted(options.items()))
        )
    if at(context, "windowsOptions", "hostProcess") is True:
        yield Asked(Privilege.HOST_PROCESS, f"{where}.windowsOptions.hostProcess", "true")


def _of_annotations(annotations: Mapping[str, Any]) -> Iterator[Asked]:
    for key, value in annotations.items():
        if key.startswith(_APP_ARMOR) and value == "unconfined":
            yield Asked(Privilege.APP_ARMOR, f"metadata.annotations[{key}]", value)
