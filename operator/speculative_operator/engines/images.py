"""Public images by engine, release and vendor of accelerators (`data/images.csv`), and what their pods need besides.

Asked by every adapter: `image_of` for the container, `refusal` for a combination without a documented image. A row's
`source` names the page or file that documents the image. Where none is documented, or its tag cannot be told from the
release, the user names one in `spec.engine.image`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from speculative_operator.domain import names
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Target
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix.rows import Row, parse_version, row_fields, rows_of

_USER = 2000
"""vllm/vllm-openai is prepared for this id (docs/deployment/docker.md of vLLM). In the other images it is an id that
owns nothing: they would start as root otherwise, and caches and HOME lie in the cache volume anyway."""
_SERVE = ("vllm", "serve")
API_SERVER = ("python3", "-m", "vllm.entrypoints.openai.api_server")
"""What the platform's own runtimes start (vllm-cuda-runtime of OpenShift AI), by the name that every image has: vLLM's
own has no `python` (docker/Dockerfile of vllm-project/vllm). It takes no model by position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(Row):
    """A documented public image."""

    vendor: Vendor
    reference: str
    """`{version}` in it is the release without a leading v."""


IMAGES: tuple[Image, ...] = tuple(
    Image(**row_fields(row), vendor=Vendor(row["vendor"]), reference=row["reference"]) for row in rows_of("images")
)

EXAMPLES: Mapping[tuple[EngineType, Vendor], str] = MappingProxyType(
    {
        (EngineType.VLLM, Vendor.GAUDI): (
            "vault.habana.ai/gaudi-docker/1.24.0/ubuntu24.04/habanalabs/vllm-installer-2.10.0:latest, whose name tells "
            "the releases of Intel Gaudi software and PyTorch"
        ),
        (EngineType.VLLM, Vendor.NEURON): (
            "one of public.ecr.aws/neuron/pytorch-inference-vllm-neuronx, whose tags tell the Neuron SDK"
        ),
        (EngineType.SGLANG, Vendor.AMD): (
            "lmsysorg/sglang:v0.5.20-rocm10-mi30x, whose tags tell the release of ROCm and the accelerator"
        ),
    }
)
"""Where the tag cannot be told from the release: what such images are called."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What pods on one vendor's accelerators need beside the accelerators."""

    limits_per_accelerator: Mapping[str, int] = field(default_factory=dict)
    """Resource -> MiB for each accelerator."""
    shared_memory: bool = False
    """True when even a single accelerator's process needs /dev/shm."""
    env: Mapping[str, str] = field(default_factory=dict)
    parallel_env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables needed only where a replica has more than one accelerator."""
    command: Mapping[EngineType, tuple[str, ...]] = field(default_factory=dict)
    """Entry point, where the images of this vendor have none of the engine's own."""
    compile_seconds: int = 0
    """Seconds added to the startup budget for a compiler that runs before the port opens; generous assumptions."""
    note: str = ""
    """What a user has to add in spec.template, one sentence; for the docs."""


NEEDS: Mapping[Vendor, Needs] = MappingProxyType(
    {
        Vendor.AMD: Needs(
            note="The groups that own /dev/kfd and /dev/dri on the nodes belong in securityContext.supplementalGroups."
        ),
        Vendor.INTEL_GPU: Needs(
            note="The group that owns /dev/dri/render* on the nodes belongs in securityContext.supplementalGroups."
        ),
        # docs.habana.ai, Running a Job on the Cluster: 42000Mi of huge pages and 690Gi of memory for eight cards.
        # Kubernetes refuses huge pages without memory or cpu beside them.
        Vendor.GAUDI: Needs(
            limits_per_accelerator={"hugepages-2Mi": 5250, "memory": 88320},
            shared_memory=True,
            env={"OMPI_MCA_btl_vader_single_copy_mechanism": "none"},
            parallel_env={"PT_HPU_ENABLE_LAZY_COLLECTIVES": "true"},
            command={EngineType.VLLM: _SERVE},
            compile_seconds=1800,
            note="The nodes must have huge pages of 2 MiB allocated: 5250 MiB for each card.",
        ),
        Vendor.NEURON: Needs(
            shared_memory=True,
            env={"NEURON_COMPILE_CACHE_URL": f"{names.CACHE_MOUNT}/neuron"},
            command={EngineType.VLLM: _SERVE},
            compile_seconds=3600,
        ),
        # tpu-inference docs/getting_started/installation.md asks for shared memory; the image has no entry point.
        Vendor.TPU: Needs(
            shared_memory=True,
            env={"VLLM_XLA_CACHE_PATH": f"{names.CACHE_MOUNT}/xla"},
            command={EngineType.VLLM: _SERVE},
            compile_seconds=1800,
            note="GKE chooses TPU nodes by cloud.google.com/gke-tpu-accelerator and -topology in nodeSelector.",
        ),
        Vendor.CPU: Needs(
            shared_memory=True,
            note="CPU and memory belong in the container's resources, the KV cache in VLLM_CPU_KVCACHE_SPACE (GiB).",
        ),
    }
)
_NOTHING = Needs()


def needs_of(spec: DeploymentSpec) -> Needs:
    """What the pods of `spec` need beside accelerators; nothing for vendors that `NEEDS` lacks."""
    return NEEDS.get(spec.accelerator.vendor, _NOTHING)


def accelerators_of_pod(spec: DeploymentSpec) -> int:
    """Number of accelerators in each pod of a replica: its pods share them evenly."""
    return spec.accelerator.per_replica // spec.nodes


def limits_of(spec: DeploymentSpec) -> dict[str, str]:
    """Resource limits of the container beside the accelerators, as Kubernetes quantities."""
    count = accelerators_of_pod(spec)
    return {name: f"{size * count}Mi" for name, size in needs_of(spec).limits_per_accelerator.items()}


def command_of(spec: DeploymentSpec) -> tuple[str, ...]:
    """The container's entry point; empty where the image's own is the engine."""
    if spec.target in (Target.INFERENCE_SERVICE, Target.LLM_INFERENCE_SERVICE) and spec.engine.type is EngineType.VLLM:
        return API_SERVER
    return needs_of(spec).command.get(spec.engine.type, ())


def environment_of(spec: DeploymentSpec) -> dict[str, str]:
    """Environment variables that the vendor's software needs, for every engine."""
    needs = needs_of(spec)
    return {**needs.env, **(needs.parallel_env if spec.accelerator.per_replica > 1 else {})}


def stock(spec: DeploymentSpec) -> Image | None:
    """The documented image for the spec's engine, release and accelerators; None where there is none.

    Other accelerators have NVIDIA's: they are mostly a share of its GPUs by another name.
    """
    version, vendor = parse_version(spec.engine.version), spec.accelerator.vendor
    wanted = (spec.engine.type, Vendor.NVIDIA if vendor is Vendor.OTHER else vendor)
    fitting = (image for image in IMAGES if (image.engine, image.vendor) == wanted)
    return next((image for image in fitting if version is not None and image.holds(version)), None)


def image_of(spec: DeploymentSpec) -> str:
    """Reference of the image that serves `spec`: the user's, else the documented one. Raises ValueError without one."""
    found = stock(spec)
    if spec.engine.image or found is None:
        if not spec.engine.image:
            raise ValueError(f"no image is documented for {_circumstances(spec)}: look at refusals() first")
        return spec.engine.image
    # Image tags are without a vendor's suffix (`+rhai5`): the user names vendors' own images.
    return found.reference.format(version=spec.engine.version.removeprefix("v").partition("+")[0])


def mirror_of(reference: str, registry: str) -> str:
    """The public image `reference` at the mirror `registry` (HOST, or HOST/FOLDER); unchanged where that is empty."""
    if not registry:
        return reference
    first, _, rest = reference.partition("/")
    named = rest and ("." in first or ":" in first)  # else the name has no registry: that of Docker is meant
    return f"{registry.rstrip('/')}/{rest if named else reference}"


def user_of(spec: DeploymentSpec) -> int | None:
    """User id for the documented image; None for the user's own image, which sets it itself."""
    return None if spec.engine.image or stock(spec) is None else _USER


def refusal(spec: DeploymentSpec) -> Refusal | None:
    """Why `spec` has no image; None when it has one, and for an unreadable release, which other checks refuse."""
    if spec.engine.image or parse_version(spec.engine.version) is None or stock(spec) is not None:
        return None
    example = EXAMPLES.get((spec.engine.type, spec.accelerator.vendor))
    message = f"there is no known public image for {_circumstances(spec)}; set spec.engine.image" + (
        f", such as {example}" if example else " to an image built for it"
    )
    return Refusal("spec.engine.image", Reason.UNSUPPORTED_BY_ENGINE, message)


def _circumstances(spec: DeploymentSpec) -> str:
    return f"{spec.engine.type} {spec.engine.version} on {spec.accelerator.vendor}"
