"""The part of the spec that says where weights come from, how they are looked at, and where they are kept.

Docstrings below are what users read. A part of `v1alpha1`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from speculative_operator.api import scalars
from speculative_operator.api.cache_rules import CACHE_RULES
from speculative_operator.api.pod import EnvVar
from speculative_operator.api.wire import Wire, ruled
from speculative_operator.domain import names
from speculative_operator.domain.spec import AccessMode, Check, Medium

_CLAIM = (
    "Name of the claim. Without size it must exist. With size it is made where it does not, for all objects of the "
    f"namespace that name it, and is never deleted. Default: {names.CACHE_CLAIM}."
)


class EmptyDir(Wire):
    """A folder of each pod's own, which is made with the pod and goes with it."""

    size_limit: scalars.Quantity
    """Largest size of what lies in it, such as 100Gi: room for both models. It is asked of the node as ephemeral
    storage, or as memory."""
    medium: Medium | None = None
    """Memory: it lies in the node's memory. Left out: on its disk."""


class Cache(Wire):
    """Where weights are kept: a claim, which a Job fills, or else nodePath or emptyDir, which each pod fills before its
    engine starts. Engines mount it read-only."""

    model_config = ruled(*CACHE_RULES)

    claim_name: scalars.ObjectName | None = Field(default=None, description=_CLAIM)
    size: scalars.Quantity | None = None
    """Size of the claim to be made, such as 500Gi. Left out: the claim exists already."""
    storage_class_name: scalars.ObjectName | None = None
    """Storage class of the claim to be made. Default: the cluster's."""
    access_mode: AccessMode | None = None
    """Access mode of the claim to be made. ReadWriteOnce holds all pods that use it on one node. Default:
    ReadWriteMany."""
    node_path: scalars.NodePath | None = None
    """Folder of each node, shared by all pods there, made where it is missing. The namespace must admit hostPath
    volumes (Pod Security level privileged)."""
    empty_dir: EmptyDir | None = None
    """A copy of each pod's own."""
    collect: bool | None = None
    """True: models that this object brought may be removed once no object has used them for 30 days, and each fetch of
    this object removes those. What an object without it brought is never removed, nor anything that the operator did
    not put there. Default: false."""
    reserve_percent: Annotated[int, scalars.whole(0, 90)] | None = None
    """Share of the disk of nodePath that stays free, in percent: where less would be left, nothing is fetched. Default:
    20, above the thresholds at which kubelets evict pods (10 % on the disk of pods, 15 % on that of images)."""


class Weights(Wire):
    """How weights reach the pods, and what is looked at before any pod is made."""

    secret_name: scalars.ObjectName | None = None
    """Secret of the same namespace with credentials: key HF_TOKEN for hf://; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN and AWS_REGION for s3://; .dockerconfigjson for oci://. Of these the engine itself gets HF_TOKEN
    alone; the others are for the Jobs that read and fetch weights, and for the containers of pods that do."""
    check: Check | None = None
    """Auto: a Job reads configuration, tokenizer and tensor headers of both models, pins their versions and compares
    them before pods are made; a pair that cannot work gets none. "Off": nothing is compared; in YAML it needs the
    quotes. The operator's setting for all objects comes first. Default: Auto."""
    cache: Cache | None = None
    """Where weights are kept between pods. A change of either model then waits until both lie there. Left out: the
    engine fetches them when a pod starts."""
    hub_endpoint: scalars.Endpoint | None = None
    """Address of a hub in place of huggingface.co, for hf://. Jobs and engines that fetch weights themselves use it; so
    for proxy, noProxy and caConfigMap."""
    s3_endpoint: scalars.Endpoint | None = None
    """Address of an S3 service in place of Amazon's, for s3://."""
    proxy: scalars.Endpoint | None = None
    """Proxy through which sources are reached."""
    no_proxy: Annotated[tuple[scalars.Destination, ...], Field(max_length=64)] | None = None
    """Destinations that are reached without it: hosts, domains with a leading dot, networks."""
    ca_config_map: scalars.ObjectName | None = None
    """ConfigMap of the same namespace whose key ca-bundle.crt holds every certificate authority to trust, in place of
    the image's own."""
    env: (
        Annotated[
            tuple[EnvVar, ...],
            Field(
                max_length=32,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            ),
        ]
        | None
    ) = None
    """Environment variables of the Jobs that read and fetch weights, and of the containers of pods that do."""
