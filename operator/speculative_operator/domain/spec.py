"""What a user asks for: the spec of one object, as `api.to_domain()` reads it. The operator fills in no field of it.

What it finds out is in `domain.resolved`; properties of the same names here say what holds until something is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from speculative_operator.domain.names import CACHE_FOLDER, KSERVE_PORT, SERVING_PORT
from speculative_operator.domain.platform import InferenceServiceSettings, Measuring, Route, Vendor, vendor_of
from speculative_operator.domain.table import KTable

NOT_OF_PODS: Mapping[str, bool] = {"of_pods": False}
"""Metadata of a field that may be edited without replacing pods, or replaces them only through the pair, the table or
the prepared K."""


class Method(StrEnum):
    """Engine-neutral names of ways to draft, spelt as the engines spell them."""

    NGRAM = "ngram"
    NGRAM_GPU = "ngram_gpu"
    SUFFIX = "suffix"
    DRAFT_MODEL = "draft_model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    MEDUSA = "medusa"
    DFLASH = "dflash"
    DSPARK = "dspark"

    @property
    def draft_free(self) -> bool:
        """True when the method drafts without weights: it looks tokens up in the text."""
        return self in (Method.NGRAM, Method.NGRAM_GPU, Method.SUFFIX)

    @property
    def may_sit_in_verifier(self) -> bool:
        """True when the drafting weights can be part of the verifier's checkpoint."""
        return self in (Method.MTP, Method.DSPARK)


class Mode(StrEnum):
    AUTO = "Auto"
    RECOMMEND = "Recommend"
    STATIC = "Static"
    DISABLED = "Disabled"


class OffPolicy(StrEnum):
    """How the tuner may turn speculation off, the mildest way first."""

    NEVER = "Never"
    """K stays above 0."""
    KEEP_RUNNING = "KeepRunning"
    """K may be 0; the engine then still runs the speculator's first pass."""
    SKIP = "Skip"
    """As KEEP_RUNNING; steps skip the speculator while K stays 0, where the engine can."""
    REMOVE = "Remove"
    """As KEEP_RUNNING; a rollout may remove the speculator."""


class Workload(StrEnum):
    CODE = "Code"
    STRUCTURED = "Structured"
    CHAT = "Chat"
    SUMMARIZATION = "Summarization"
    CREATIVE = "Creative"
    MIXED = "Mixed"


class Goal(StrEnum):
    GOODPUT = "Goodput"
    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    COST = "Cost"


class EngineType(StrEnum):
    VLLM = "vLLM"
    SGLANG = "SGLang"
    TENSORRT_LLM = "TensorRTLLM"


DEFAULT_VERSIONS = {
    EngineType.VLLM: "0.32.0",
    EngineType.SGLANG: "0.5.23",
    EngineType.TENSORRT_LLM: "1.3.0rc29",
}
"""Release that is served when the spec names none: the one whose behaviour docs/engines.md tells. TensorRT-LLM's is a
release candidate: 1.2.1, its newest final release, keeps one K and exports too little to tell which K is best."""


class Target(StrEnum):
    DEPLOYMENT = "Deployment"
    INFERENCE_SERVICE = "InferenceService"
    LLM_INFERENCE_SERVICE = "LLMInferenceService"
    LEADER_WORKER_SET = "LeaderWorkerSet"


class Scheme(StrEnum):
    """Where weights come from."""

    HF = "hf"
    OCI = "oci"
    S3 = "s3"
    PVC = "pvc"
    POD = "pod"
    """A folder that each pod fills before its engine starts: in resolved specs, never in what a user writes."""


SOURCES = tuple(scheme for scheme in Scheme if scheme is not Scheme.POD)  # that a user may name
MOUNTED = frozenset({Scheme.PVC, Scheme.OCI})  # whose files the kubelet mounts: no cache ever holds them


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`scheme://location`, with the revision asked for (empty: the source's default)."""

    scheme: Scheme
    location: str
    revision: str = ""
    content: str = ""
    """Hash over the files, where no revision says what they are. Users name none: it is a version, as a pin is."""

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.location}"


@dataclass(frozen=True, slots=True)
class LoraLimits:
    """Adapters that requests may name: at most so many in one batch, each of at most this rank."""

    max_adapters: int = 1
    max_rank: int = 16


@dataclass(frozen=True, slots=True)
class Verifier:
    source: ModelSource
    served_name: str
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    dtype: str = ""
    quantization: str = ""
    kv_cache_dtype: str = ""
    gpu_memory_utilization_percent: int | None = None
    max_num_batched_tokens: int | None = None
    expert_parallel: bool = False
    """Experts of a mixture-of-experts model spread over the accelerators instead of each being split."""
    lora: LoraLimits | None = None
    aliases: tuple[str, ...] = ()  # further names than `served_name`


@dataclass(frozen=True, slots=True)
class Speculator:
    method: Method
    source: ModelSource | None = None
    tensor_parallel_size: int | None = None
    quantization: str = ""
    parallel_drafting: bool = False  # it was trained to draft all K tokens in one pass (P-EAGLE, PARD)
    heterogeneous_vocabulary: bool = False  # a draft_model whose vocabulary differs from the verifier's
    prompt_lookup_min: int | None = None  # shortest and longest run of tokens that ngram looks up
    prompt_lookup_max: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # further keys of vLLM's --speculative-config, plain JSON


@dataclass(frozen=True, slots=True)
class Objective:
    goal: Goal = Goal.GOODPUT
    tpot_p99_seconds: float | None = None
    ttft_p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Speculation:
    mode: Mode = field(default=Mode.AUTO, metadata=NOT_OF_PODS)
    num_speculative_tokens: int | None = field(default=None, metadata=NOT_OF_PODS)
    max_speculative_tokens: int = 8
    schedule: KTable | None = field(default=None, metadata=NOT_OF_PODS)
    off_policy: OffPolicy = field(default=OffPolicy.SKIP, metadata=NOT_OF_PODS)
    workload: Workload = field(default=Workload.MIXED, metadata=NOT_OF_PODS)
    objective: Objective = field(default_factory=Objective, metadata=NOT_OF_PODS)
    adaptive_verification: bool = False  # vLLM verifies only the drafts that it estimates to be worth their time


@dataclass(frozen=True, slots=True)
class EngineSettings:
    type: EngineType = EngineType.VLLM
    version: str = DEFAULT_VERSIONS[EngineType.VLLM]
    image: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()
    version_named: bool = field(default=False, metadata=NOT_OF_PODS)  # by the user, even if it is the default too

    @property
    def live(self) -> bool:
        """True: pods count as re-reading their table until they were found not to."""
        return True

    @property
    def startup_seconds(self) -> int:
        """0: no start was measured, so the engine's adapter estimates the startup budget."""
        return 0


@dataclass(frozen=True, slots=True)
class AcceleratorRequest:
    resource: str = "nvidia.com/gpu"
    product: str = ""
    per_replica: int = 1
    hourly_cost: float | None = field(default=None, metadata=NOT_OF_PODS)

    @property
    def vendor(self) -> Vendor:
        return vendor_of(self.resource, self.per_replica)

    @property
    def replica_cost(self) -> float | None:
        """Price of a replica for an hour; None where none was given."""
        return None if self.hourly_cost is None else self.hourly_cost * self.per_replica


class Check(StrEnum):
    """Whether the operator inspects pairs before it makes pods of them."""

    AUTO = "Auto"
    DISABLED = "Disabled"


class AccessMode(StrEnum):
    """How many nodes may mount a claim at once."""

    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE = "ReadWriteOnce"


class Medium(StrEnum):
    MEMORY = "Memory"


@dataclass(frozen=True, slots=True)
class EmptyDir:
    """A folder that is made with a pod and goes with it, on the node's disk unless `medium` says otherwise."""

    size_limit: str
    medium: Medium | None = None


EMPTY_DIR = "emptyDir"
"""How `Cache.place` names one: no claim has a capital letter, no folder of a node begins with another than `/`."""
NODE_RESERVE_PERCENT = 20
"""Per cent of a node's disk to stay free: by default kubelets evict pods below 15 % (images) and 10 % (pods)."""


@dataclass(frozen=True, slots=True)
class Cache:
    """Where weights are kept: exactly one of claim, node_path and empty_dir. The first two are never deleted."""

    claim: str = ""
    size: str = field(default="", metadata=NOT_OF_PODS)
    """Size of the claim that the operator makes where it does not exist; empty: the claim must exist."""
    storage_class: str = field(default="", metadata=NOT_OF_PODS)
    access_mode: AccessMode = field(default=AccessMode.READ_WRITE_MANY, metadata=NOT_OF_PODS)
    node_path: str = ""
    empty_dir: EmptyDir | None = None
    collect: bool = False  # versions that nobody has used for long may be removed
    reserve_percent: int = NODE_RESERVE_PERCENT
    """Per cent of the disk of `node_path` that stays free."""

    @property
    def brought(self) -> tuple[tuple[str, ModelSource], ...]:
        """Empty: which versions pods bring into the cache is known once they are pinned."""
        return ()

    @property
    def in_pods(self) -> bool:
        """True where no Job can fill the cache: each pod does so before its engine starts."""
        return not self.claim

    @property
    def place(self) -> str:
        """The name of this cache in status and in the hash of a pair: the claim, the node's folder, or EMPTY_DIR."""
        return self.claim or self.node_path or EMPTY_DIR

    @property
    def home(self) -> str:
        """`place` with the operator's own folder in its root."""
        return f"{self.place}/{CACHE_FOLDER}"


@dataclass(frozen=True, slots=True)
class Weights:
    secret_name: str = ""
    check: Check = field(default=Check.AUTO, metadata=NOT_OF_PODS)
    cache: Cache | None = None  # None: the engine fetches the weights itself
    hub_endpoint: str = ""
    s3_endpoint: str = ""
    proxy: str = ""
    no_proxy: tuple[str, ...] = ()
    ca_config_map: str = ""
    env: tuple[Mapping[str, Any], ...] = ()
    """Kubernetes EnvVar objects of the Jobs, as given."""
    repin: str = field(default="", metadata=NOT_OF_PODS)
    """Value of the annotation that has branches and tags resolved anew."""

    @property
    def bytes(self) -> int:
        """0: the size of the models is known once their files were read."""
        return 0


class RolloutStrategy(StrEnum):
    AUTO = "Auto"
    ROLLING_UPDATE = "RollingUpdate"
    RECREATE = "Recreate"


class Tuning(StrEnum):
    """What a rollout that the tuner wants may cost."""

    KEEP_CAPACITY = "KeepCapacity"
    INTERRUPT = "Interrupt"


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """Minutes of each day, UTC, in which something may be done; past midnight where the end is not after the begin."""

    begin: int
    end: int

    def holds(self, now: float) -> bool:
        """True where `now` (unix seconds) lies within the window."""
        length = (self.end - self.begin) % 1440 or 1440
        return (int(now // 60) - self.begin) % 1440 < length


@dataclass(frozen=True, slots=True)
class DeploymentSpec:
    """One SpeculativeDeployment. `raw` values that pass through unread (template) stay plain JSON."""

    name: str
    namespace: str
    uid: str = field(metadata=NOT_OF_PODS)
    generation: int = field(metadata=NOT_OF_PODS)
    verifier: Verifier
    speculator: Speculator | None = None
    speculation: Speculation = field(default_factory=Speculation)
    engine: EngineSettings = field(default_factory=EngineSettings)
    accelerator: AcceleratorRequest = field(default_factory=AcceleratorRequest)
    replicas: int = field(default=1, metadata=NOT_OF_PODS)
    weights: Weights = field(default_factory=Weights)
    rollout_strategy: RolloutStrategy = field(default=RolloutStrategy.AUTO, metadata=NOT_OF_PODS)
    rollout_tuning: Tuning = field(default=Tuning.KEEP_CAPACITY, metadata=NOT_OF_PODS)
    rollout_window: DailyWindow | None = field(default=None, metadata=NOT_OF_PODS)
    """When the tuner may interrupt serving, where it may at all; None: at any time."""
    target: Target = field(default=Target.DEPLOYMENT, metadata=NOT_OF_PODS)
    nodes: int = 1  # pods of one replica, which share its accelerators evenly
    inference_service: InferenceServiceSettings = field(default_factory=InferenceServiceSettings)
    route: Route | None = field(default=None, metadata=NOT_OF_PODS)
    template: Mapping[str, Any] = field(default_factory=dict)
    paused: bool = field(default=False, metadata=NOT_OF_PODS)
    adopt: str = ""  # value of the annotation that has pods made as this release of the operator makes them
    accept: str = field(default="", metadata=NOT_OF_PODS)
    """Value of the annotation that accepts a rollout which the operator has proposed."""
    suspend: str = field(default="", metadata=NOT_OF_PODS)
    """Value of the annotation that asks for K = 0 until a time."""
    verified: str = field(default="", metadata=NOT_OF_PODS)
    """Value of the annotation with what `speculative verify` found."""
    auto_speculator: bool = field(default=False, metadata=NOT_OF_PODS)  # `speculator` is None until one was picked
    measure: Measuring | None = field(default=None, metadata=NOT_OF_PODS)  # None: no row of the catalogue is measured
    candidate_of: str = field(default="", metadata=NOT_OF_PODS)  # the object for which this one is measured; or empty

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def port(self) -> int:
        """Port of the engine's HTTP server."""
        return KSERVE_PORT if self.target is Target.INFERENCE_SERVICE else SERVING_PORT

    def without_speculator(self) -> Self:
        """The spec with mode Disabled, from which pods are made while the tuner has them run without a speculator.
        The same pods, labels included, so that a user who then sets mode Disabled replaces none."""
        return replace(self, speculation=replace(self.speculation, mode=Mode.DISABLED))

    @property
    def speculates(self) -> bool:
        """True when the pods are to run with a speculator at all."""
        return self.speculator is not None and self.speculation.mode is not Mode.DISABLED
