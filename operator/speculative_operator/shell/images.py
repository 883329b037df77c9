"""Tells whether the API server keeps image volumes, in which oci:// models come to pods. Used by `writes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import Resource

NO_IMAGES = (
    "the API server drops image volumes, which oci:// models need (feature gate ImageVolume; off or missing before "
    "Kubernetes 1.35; or, for KServe, a definition of KServe that lacks volumes[].image): set "
    "spec.weights.cache, so that a Job fetches the models, or enable the feature gate, or upgrade KServe"
)


async def keeps_images(kube: Kube, resource: Resource, manifest: Mapping[str, Any], uid: str | None) -> bool:
    """False where a dry run shows that the API server would silently drop image volumes of the manifest: pods would
    take an accelerator and not find their model. True where the dry run fails, because the apply then tells the
    error."""
    try:
        tried = await kube.apply(resource, manifest, uid=uid, dry=True)
    except ApiError:
        return True
    return image_volumes(manifest) <= image_volumes(tried)


def image_volumes(manifest: Mapping[str, Any]) -> set[str]:
    """Names of the image volumes of the pods of a Deployment or an object of KServe."""
    spec = manifest.get("spec") or {}
    template = spec.get("template") or {}
    pod = spec.get("predictor") or template.get("spec") or template
    return {volume["name"] for volume in pod.get("volumes") or () if volume.get("image")}
