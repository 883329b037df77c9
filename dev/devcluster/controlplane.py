"""The control plane: its credentials and the command lines of its four programs.

Feature gates and admission are left at Kubernetes' defaults: what holds here holds elsewhere. Called by `cluster.py`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster import addresses, kubeconfig, pki
from devcluster.component import Component
from devcluster.toolchain import Toolchain

INSIDE_SERVER = f"https://{addresses.API_SERVER}:{addresses.API_SERVER_PORT}"

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}

_SERVER_NAMES = (
    "localhost",
    "127.0.0.1",
    addresses.API_SERVER,
    addresses.KUBERNETES_SERVICE,
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class Files:
    """Paths below a cluster's state directory; `prepare` writes them."""

    directory: Path

    @property
    def keys(self) -> Path:
        return self.directory / "pki"

    @property
    def authority(self) -> Path:
        return self.keys / "ca.crt"

    @property
    def admin(self) -> pki.KeyPair:
        return pki.KeyPair(self.keys / "admin.crt", self.keys / "admin.key")

    @property
    def kubeconfig(self) -> Path:
        """For people and programs of the host."""
        return self.directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.directory / "logs" / "audit.log"

    @property
    def audit_policy(self) -> Path:
        return self.directory / "audit-policy.json"

    def inside(self, identity: str) -> Path:
        """Kubeconfig of an identity for use inside the enclosure."""
        return self.directory / f"{identity}.kubeconfig"


def prepare(files: Files, cluster_name: str, host_server: str, node_name: str) -> None:
    """Write every certificate, key, kubeconfig and policy that the control plane and its clients read."""
    authority = pki.Authority.create(files.keys)
    authority.issue("apiserver", "kube-apiserver", alternative_names=_SERVER_NAMES)
    authority.issue("kubelet", f"system:node:{node_name}", alternative_names=[addresses.NODE, node_name])
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", organizations=["system:masters"])
    pki.service_account_keys(files.keys)
    files.audit_policy.write_text(json.dumps(_AUDIT_POLICY))
    # The node is cluster administrator too: the node authorizer lets a node read only what its pods mount, one object
    # at a time, and a process node also does a proxy's and a provisioner's work.
    identities: Mapping[str, tuple[str, list[str]]] = {
        "admin": ("admin", ["system:masters"]),
        "controller-manager": ("system:kube-controller-manager", []),
        "scheduler": ("system:kube-scheduler", []),
        "node": (f"system:node:{node_name}", ["system:nodes", "system:masters"]),
    }
    for identity, (user, groups) in identities.items():
        pair = authority.issue(identity, user, organizations=groups)
        content = kubeconfig.render(cluster_name, INSIDE_SERVER, files.authority, user, pair)
        kubeconfig.write(files.inside(identity), content)
    context = f"devcluster-{cluster_name}"
    kubeconfig.write(
        files.kubeconfig, kubeconfig.render(context, host_server, files.authority, f"{context}-admin", files.admin)
    )


def flags(values: Mapping[str, object]) -> Iterator[str]:
    """`--key=value` for each entry; booleans as Go writes them."""
    for key, value in values.items():
        yield f"--{key}={str(value).lower() if isinstance(value, bool) else value}"


def etcd(files: Files, tools: Toolchain) -> Component:
    """The store, without waiting for the disk: its content ends with the cluster anyway."""
    client = f"http://{addresses.ETCD}:{addresses.ETCD_CLIENT_PORT}"
    peer = f"http://{addresses.ETCD}:{addresses.ETCD_PEER_PORT}"
    return Component(
        name="etcd",
        argv=(
            str(tools.etcd),
            *flags(
                {
                    "name": "devcluster",
                    "data-dir": files.directory / "etcd",
                    "listen-client-urls": client,
                    "advertise-client-urls": client,
                    "listen-peer-urls": peer,
                    "initial-advertise-peer-urls": peer,
                    "initial-cluster": f"devcluster={peer}",
                    "unsafe-no-fsync": True,
                }
            ),
        ),
        ready=f"tcp://{addresses.ETCD}:{addresses.ETCD_CLIENT_PORT}",
    )


def api_server(files: Files, tools: Toolchain, more: Mapping[str, str] | None = None) -> Component:
    """The API server: RBAC and Node authorization, an audit record of every request, kubelets believed unchecked.
    `more` flags of it."""
    keys = files.keys
    return Component(
        name="kube-apiserver",
        argv=(
            str(tools.kube_apiserver),
            *flags(
                {
                    # Without a default route the server finds no address of its own.
                    "bind-address": addresses.API_SERVER,
                    "advertise-address": addresses.API_SERVER,
                    "secure-port": addresses.API_SERVER_PORT,
                    "etcd-servers": f"http://{addresses.ETCD}:{addresses.ETCD_CLIENT_PORT}",
                    "service-cluster-ip-range": addresses.SERVICE_RANGE,
                    "authorization-mode": "Node,RBAC",
                    "allow-privileged": True,
                    "client-ca-file": files.authority,
                    "tls-cert-file": keys / "apiserver.crt",
                    "tls-private-key-file": keys / "apiserver.key",
                    "kubelet-client-certificate": keys / "kubelet-client.crt",
                    "kubelet-client-key": keys / "kubelet-client.key",
                    "kubelet-preferred-address-types": "InternalIP",
                    "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
                    "service-account-key-file": keys / "service-accounts.pub",
                    "service-account-signing-key-file": keys / "service-accounts.key",
                    "audit-policy-file": files.audit_policy,
                    "audit-log-path": files.audit_log,
                    "profiling": False,
                    **(more or {}),
                }
            ),
        ),
        env={"GOGC": "400"},  # collects garbage less often: a fifth less of the processor, for 200 MiB of memory
        ready=f"{INSIDE_SERVER}/readyz",
        after=("etcd",),
    )


def controllers(files: Files, tools: Toolchain) -> tuple[Component, Component]:
    """Controller manager and scheduler; alone, so neither elects a leader."""
    manager = files.inside("controller-manager")
    scheduler = files.inside("scheduler")
    return (
        Component(
            name="kube-controller-manager",
            argv=(
                str(tools.kube_controller_manager),
                *flags(
                    {
                        **_controller_flags(manager),
                        "service-account-private-key-file": files.keys / "service-accounts.key",
                        "root-ca-file": files.authority,
                        "cluster-signing-cert-file": files.authority,
                        "cluster-signing-key-file": files.keys / "ca.key",
                        "use-service-account-credentials": True,
                        # At the default of 20 a second, making its forty ServiceAccounts takes most of a start.
                        "kube-api-qps": 200,
                        "kube-api-burst": 400,
                    }
                ),
            ),
            after=("kube-apiserver",),
        ),
        Component(
            name="kube-scheduler",
            argv=(str(tools.kube_scheduler), *flags(_controller_flags(scheduler))),
            after=("kube-apiserver",),
        ),
    )


def _controller_flags(credentials: Path) -> dict[str, object]:
    return {
        "kubeconfig": credentials,
        "authentication-kubeconfig": credentials,
        "authorization-kubeconfig": credentials,
        "bind-address": "127.0.0.1",
        "leader-elect": False,
        "profiling": False,
    }
