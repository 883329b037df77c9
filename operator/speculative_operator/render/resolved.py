"""The record on a workload of what its pods were made of and can do, beside what its user asked for. Written by
`manifests`, read by `reconcile`.

It is the annotation `resolved` of the workload, never of its pod template. What is not exactly as this release wrote it
for this object counts as no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping, mappings, parse_json, text
from speculative_operator.domain.spec import DeploymentSpec, ModelSource, Scheme
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.render.inputs import RenderInput
from speculative_operator.render.metadata import canonical, digest

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Model:
    """One model at the version that pods load."""

    told: ModelSource
    """The model as the engine is told of it."""
    brought: tuple[tuple[str, ModelSource], ...] = ()
    """The entries of `Cache.brought` for the model."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the operator found out and the pods of a workload were made of."""

    template: str
    """Hash of the pod template as it was rendered, whatever the API server made of it."""
    models: tuple[Model, ...]
    """Verifier and speculator, where pods load one."""
    startup_seconds: int
    bytes: int
    """Bytes of weights that requests were reckoned for; 0 where unknown."""
    job_image: str
    """The operator's image that helps the engine in the pods; empty where none does."""
    adopt: str
    """Value of the annotation `adopt` with which the pods were made."""
    knobs: KnobSpace
    """Tables that the tuner may choose for the pods."""


def record(inp: RenderInput, template: Mapping[str, Any]) -> str:
    """The record of a workload whose pod `template` was rendered from `inp`."""
    spec = inp.spec
    sources = (spec.verifier.source, spec.speculator.source if spec.speculates and spec.speculator else None)
    content = {
        "template": digest(template, 16),
        "models": [asdict(_model(spec, one)) for one in sources if one is not None],
        "startupSeconds": inp.container.startup_seconds,
        "bytes": spec.weights.bytes,
        "jobImage": inp.capabilities.job_image if helper_of(template) else "",
        "adopt": spec.adopt,
        "knobs": asdict(inp.knobs),
    }
    return seal(content, spec.uid)


def seal(content: Mapping[str, Any], uid: str) -> str:
    """The record with `content` of the object `uid`; its digest betrays one that was edited or copied."""
    return canonical({**content, "format": _FORMAT, "digest": digest([uid, _FORMAT, content], 16)})


def read(workload: Mapping[str, Any] | None, uid: str) -> Resolved | None:
    """The record on a workload of the object `uid`; None without one that this release can have written."""
    found = mapping(parse_json(text(workload, "metadata", "annotations", names.ANNOTATION_RESOLVED)))
    content = {key: value for key, value in found.items() if key not in ("format", "digest")}
    try:
        if found.get("format") != _FORMAT or found["digest"] != digest([uid, _FORMAT, content], 16):
            return None
        return Resolved(
            content["template"],
            tuple(_read_model(one) for one in content["models"]),
            content["startupSeconds"],
            content["bytes"],
            content["jobImage"],
            content["adopt"],
            _read_knobs(content["knobs"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def template_of(workload: Mapping[str, Any] | None, uid: str) -> str:
    """Hash of the pod template that a workload of the object `uid` was rendered with; empty where no record tells."""
    found = read(workload, uid)
    return found.template if found is not None else ""


def helper_of(template: Mapping[str, Any]) -> str:
    """The operator's image that helps the engine in pods of `template`; empty where none does."""
    containers = mappings(template, "spec", "initContainers")
    return next((text(one, "image") for one in containers if text(one, "name") == names.JOB_CONTAINER), "")


def _model(spec: DeploymentSpec, source: ModelSource) -> Model:
    entries = spec.weights.cache.brought if spec.weights.cache is not None else ()
    brought = tuple(one for one in entries if source.scheme is Scheme.POD and source.location.endswith(f"/{one[0]}"))
    return Model(source, brought)


def _read_model(data: Mapping[str, Any]) -> Model:
    return Model(_source(data["told"]), tuple((folder, _source(one)) for folder, one in data["brought"]))


def _read_knobs(data: Mapping[str, Any]) -> KnobSpace:
    lists = {name: tuple(data[name]) for name in ("ks", "capture_sizes")}
    return KnobSpace(**{**data, **lists, "actuator": Actuator(data["actuator"])})


def _source(data: Mapping[str, Any]) -> ModelSource:
    return ModelSource(**{**data, "scheme": Scheme(data["scheme"])})
