"""What adapters write on an engine's command line: its flags, and where it finds weights (a hub name that it loads
itself, or a folder of a mounted claim or image).

Used by every adapter's arguments, container and checks. `shared.flags` has what the user may add.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, ModelSource, Scheme, Verifier
from speculative_operator.engines.base import MODELS_MOUNT, ImageMount, PvcMount, Refusal

ALL_INTERFACES = "0.0.0.0"  # noqa: S104  (the pod's own network namespace; a NetworkPolicy says who may reach it)


def flag_arguments(*rows: tuple[str, object]) -> Iterator[str]:
    """Arguments of rows (flag, value): the flag alone for True, nothing for None, False and an empty text."""
    for flag, value in rows:
        if value is True:
            yield flag
        elif value is not None and value is not False and value != "":
            yield from (flag, str(value))


def verifier_arguments(
    verifier: Verifier, fields: Mapping[str, str], batch: int | None = None, experts: object = True
) -> Iterator[str]:
    """Arguments that say what the verifier's fields do: flag -> field of spec.verifier, in this order.

    `batch` stands for maxNumSeqs, `experts` for expertParallel true. Fields that are not set, and parallel sizes of 1
    but the tensors', are left to the engine.
    """
    percent = verifier.gpu_memory_utilization_percent
    values: dict[str, object] = {
        "tensorParallelSize": verifier.tensor_parallel_size,
        "pipelineParallelSize": _above_one(verifier.pipeline_parallel_size),
        "dataParallelSize": _above_one(verifier.data_parallel_size),
        "expertParallel": verifier.expert_parallel and experts,
        "maxNumSeqs": batch,
        "maxModelLen": verifier.max_model_len,
        "maxNumBatchedTokens": verifier.max_num_batched_tokens,
        "dtype": verifier.dtype,
        "quantization": verifier.quantization,
        "kvCacheDtype": verifier.kv_cache_dtype,
        "gpuMemoryUtilizationPercent": "" if percent is None else f"{percent / 100:g}",
    }
    return flag_arguments(*((flag, values[field]) for flag, field in fields.items()))


def _above_one(size: int) -> int | None:
    """`size`, or None for 1, which engines take by themselves."""
    return size if size > 1 else None


@dataclass(frozen=True, slots=True)
class Located:
    """One source as the engine's command line names it."""

    model: str
    revision: str = ""
    pvc: PvcMount | None = None
    image: ImageMount | None = None


def locate(source: ModelSource, role: str) -> Located:
    """`role` ("verifier" or "speculator") names the folder of an image. Raises ValueError for s3: checks
    refuse it, or its weights lie in a cache.

    A claim is mounted whole, once, because hub caches link from one folder of it into another.
    """
    if source.scheme is Scheme.HF:
        return Located(source.location, revision=source.revision)
    if source.scheme is Scheme.PVC:
        claim, _, path = source.location.partition("/")
        mount = f"{MODELS_MOUNT}/{claim}"
        return Located(f"{mount}/{path}".rstrip("/"), pvc=PvcMount(claim, mount))
    if source.scheme is Scheme.POD:
        _, _, path = source.location.rpartition(f"/{names.CACHE_FOLDER}/")
        return Located(f"{names.WEIGHTS_MOUNT}/{names.CACHE_FOLDER}/{path}")
    if source.scheme is Scheme.OCI:
        mount = f"{MODELS_MOUNT}/{role}"
        return Located(mount, image=ImageMount(source.location, mount))
    raise ValueError(f"{source.uri}: no engine loads {source.scheme}:// itself")


def locate_all(spec: DeploymentSpec, with_speculator: bool) -> tuple[Located, ...]:
    """Every source of the spec, the verifier's first."""
    roles = [(spec.verifier.source, "verifier")]
    if with_speculator and spec.speculator is not None and spec.speculator.source:
        roles.append((spec.speculator.source, "speculator"))
    return tuple(locate(source, role) for source, role in roles)


def source_refusals(spec: DeploymentSpec) -> Iterator[Refusal]:
    """Refusals of the sources of models, in the order of the spec."""
    speculator = spec.speculator.source if spec.speculator is not None else None
    for side, source in (("verifier", spec.verifier.source), ("speculator", speculator)):
        if source is not None and source.scheme is Scheme.S3 and spec.weights.cache is None:
            field = f"spec.{side}.model"
            message = (
                f"{field} {source.uri}: engines do not load s3:// themselves; set spec.weights.cache, or use hf://, "
                "pvc:// or oci://"
            )
            yield Refusal(field, Reason.UNSUPPORTED_SOURCE, message)
