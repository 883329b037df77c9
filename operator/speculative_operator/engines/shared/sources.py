"""Where an engine finds weights: a hub name it loads itself, or a folder of a mounted claim or image.

Used by every adapter's arguments, container and checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, ModelSource, Scheme
from speculative_operator.engines.base import MODELS_MOUNT, ImageMount, PvcMount, Refusal


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
        return Located(f"{mount}/{path}".rstrip("/"), pvc=PvcMount(claim, "", mount))
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


def refusals(spec: DeploymentSpec) -> Iterator[Refusal]:
    """Refusals of the sources of models, in the order of the spec."""
    cached = spec.weights.cache is not None
    yield from _refusals(spec.verifier.source, "spec.verifier.model", cached=cached)
    if spec.speculator is not None and spec.speculator.source is not None:
        yield from _refusals(spec.speculator.source, "spec.speculator.model", cached=cached)


def _refusals(source: ModelSource, field: str, *, cached: bool) -> Iterator[Refusal]:
    if source.scheme is Scheme.S3 and not cached:
        message = (
            f"{field} {source.uri}: engines do not load s3:// themselves; set spec.weights.cache, or use hf://, pvc:// "
            "or oci://"
        )
        yield Refusal(field, Reason.UNSUPPORTED_SOURCE, message)
    elif source.scheme is Scheme.PVC:
        claim, _, path = source.location.partition("/")
        if not claim or ".." in path.split("/"):
            message = f"{field} {source.uri}: write pvc://CLAIM/FOLDER, where FOLDER has no '..'"
            yield Refusal(field, Reason.SPEC_INVALID, message)
    if source.scheme is not Scheme.HF and source.revision:
        message = (
            f"{field}: a revision ({source.revision}) applies to hf:// sources only; remove it, "
            "or put the version into the image reference or folder"
        )
        yield Refusal(field.replace(".model", ".revision"), Reason.SPEC_INVALID, message)
