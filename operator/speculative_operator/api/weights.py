"""The parts of the spec that say where weights come from, how they are looked at, and where they are kept, with their
rules as CEL.

Docstrings below are what users read. A part of `v1alpha1`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from speculative_operator.api import scalars
from speculative_operator.api.pod import EnvVars
from speculative_operator.api.wire import Rule, Wire, config_with_rules
from speculative_operator.domain import names
from speculative_operator.domain.spec import AccessMode, Check, Medium

_OF_CLAIM = "has(self.claimName) || has(self.size) || has(self.storageClassName) || has(self.accessMode)"


CACHE_RULES = (
    Rule(
        "cache-claim",
        "has(self.claimName) || has(self.size) || has(self.nodePath) || has(self.emptyDir)",
        "cache has no claimName and no size: set claimName to an existing claim, or set size to create one",
        "size",
        "FieldValueRequired",
    ),
    Rule(
        "cache-class-of-new",
        "!has(self.storageClassName) || has(self.size)",
        'storageClassName is "{self.storageClassName}" but size is not set: set size to create a claim, or remove this',
        "storageClassName",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-access-of-new",
        "!has(self.accessMode) || has(self.size)",
        "accessMode is {self.accessMode} but size is not set: set size to create a claim, or remove this",
        "accessMode",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-node-path-alone",
        f"!has(self.nodePath) || !({_OF_CLAIM} || has(self.emptyDir))",
        'nodePath is "{self.nodePath}" but a claim or emptyDir is set too: keep one of the three',
        "nodePath",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-empty-dir-alone",
        f"!has(self.emptyDir) || !({_OF_CLAIM})",
        "emptyDir is set but a claim is set too: keep one of the two",
        "emptyDir",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-collect-shared",
        "!has(self.emptyDir) || !has(self.collect) || !self.collect",
        "collect is true but emptyDir is set: remove collect, because an emptyDir is deleted with its pod",
        "collect",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-reserve-of-node",
        "!has(self.reservePercent) || has(self.nodePath)",
        "reservePercent is {#self.reservePercent} but nodePath is not set: remove it, because it applies to disks of "
        "nodes only",
        "reservePercent",
        "FieldValueForbidden",
    ),
)


class EmptyDir(Wire):
    """A folder that each pod creates for itself and that is deleted with the pod."""

    size_limit: scalars.Quantity
    """Maximum size, such as 100Gi: room for both models. The pod requests it as ephemeral storage, or as memory."""
    medium: Medium | None = None
    """Memory: the folder is in the node's memory. Default: on the node's disk."""


class Cache(Wire):
    """Storage for weights: a claim, which a Job fills, or nodePath or emptyDir, which each pod fills before its engine
    starts. Engines mount it read-only."""

    model_config = config_with_rules(*CACHE_RULES)

    claim_name: scalars.ObjectName | None = Field(
        default=None,
        description="Name of the claim. Without size it must exist. With size the operator creates it if it is "
        "missing, for all objects of the namespace that name it, and never deletes it. "
        f"Default: {names.CACHE_CLAIM}.",
    )
    size: scalars.Quantity | None = None
    """Size of the claim that the operator creates, such as 500Gi. If it is left out, the claim must exist."""
    storage_class_name: scalars.ObjectName | None = None
    """Storage class of the claim that the operator creates. Default: the cluster's."""
    access_mode: AccessMode | None = None
    """Access mode of the claim that the operator creates. ReadWriteOnce keeps all its pods on one node. Default:
    ReadWriteMany."""
    node_path: scalars.NodePath | None = None
    """Folder of each node that all its pods share; it is created if missing. The namespace must admit hostPath volumes
    (Pod Security level privileged)."""
    empty_dir: EmptyDir | None = None
    """A copy for each pod."""
    collect: bool | None = None
    """True: models that this object fetched may be removed once no object has used them for 30 days; each fetch of this
    object removes them. The operator never removes models of objects without this field, or files that it did not
    write. Default: false."""
    reserve_percent: Annotated[int, scalars.whole(0, 90)] | None = None
    """Share of the disk of nodePath that stays free, in percent; a fetch that would leave less does not start. Default:
    20, above the thresholds at which kubelets evict pods (10 % on the disk of pods, 15 % on that of images)."""


class Weights(Wire):
    """How weights reach the pods, and whether the pair is checked before pods are created."""

    secret_name: scalars.ObjectName | None = None
    """Secret in the same namespace with credentials: key HF_TOKEN for hf://; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN and AWS_REGION for s3://; .dockerconfigjson for oci://. The engine gets HF_TOKEN only; Jobs and
    init containers that inspect or fetch weights get all."""
    check: Check | None = None
    """Auto: before pods are created, a Job reads configuration, tokenizer and tensor headers of both models, pins their
    versions and compares them; a pair that cannot work gets no pods. Disabled: nothing is compared. The operator's own
    setting for all objects takes precedence. Default: Auto."""
    cache: Cache | None = None
    """Storage for weights between pods. After a change of a model, pods are replaced only once both models are there.
    Default: the engine downloads weights when a pod starts."""
    hub_endpoint: scalars.Endpoint | None = None
    """Address of a hub to use instead of huggingface.co for hf://. Like proxy, noProxy and caConfigMap, it applies to
    Jobs and to engines that download weights themselves."""
    s3_endpoint: scalars.Endpoint | None = None
    """Address of an S3 service to use instead of Amazon's for s3://."""
    proxy: scalars.Endpoint | None = None
    """Proxy for all requests to sources."""
    no_proxy: Annotated[tuple[scalars.Destination, ...], Field(max_length=64)] | None = None
    """Destinations to reach without the proxy: hosts, domains with a leading dot, networks."""
    ca_config_map: scalars.ObjectName | None = None
    """ConfigMap in the same namespace whose key ca-bundle.crt holds all trusted certificate authorities; it replaces
    the image's own."""
    env: Annotated[EnvVars, Field(max_length=32)] | None = None
    """Environment variables of the Jobs and init containers that inspect and fetch weights."""
