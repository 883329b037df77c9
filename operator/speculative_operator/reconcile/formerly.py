"""What pods were made of, inferred from a Deployment without a record (`render.resolved`), as releases before 0.2 left
it. Used by `desired` and `choices`. The whole module goes one release after that record came.

Whatever was not written down is found by rendering the possibilities until one is what runs, and the versions of models
by the texts in the template that look like one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.memo import Memo
from speculative_operator.domain.models import Pin
from speculative_operator.domain.reading import at, mapping, text, whole
from speculative_operator.domain.spec import MOUNTED, ModelSource, Scheme
from speculative_operator.engines.base import Engine
from speculative_operator.reconcile import rendering, startup
from speculative_operator.reconcile.drift import first_difference, first_surplus
from speculative_operator.reconcile.pinning import FOLDER, VERSION_FOLDER, in_pods, untagged
from speculative_operator.reconcile.rendering import find_deployment, with_budget, with_helper, with_size
from speculative_operator.reconcile.world import World
from speculative_operator.render import RenderInput
from speculative_operator.render.resolved import Model, helper_of

_COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}(?![0-9a-f])")
_MOST = 8
"""Most versions of one template that are compared with its hash; a template has two."""


def keep_inputs(world: World, engine: Engine, given: RenderInput) -> tuple[RenderInput, int]:
    """`given` with the size of weights and the helping image that running pods were made of, as long as nothing else
    changes, and the startup budget in seconds."""
    now = _Now(engine, world.deployment, world.memo)
    plain = _keep_helper(_keep_size(given, now), now)
    return plain, _budget(world, plain, now)


def models_in(template: Mapping[str, Any], source: ModelSource, place: str) -> Iterator[Model]:
    """`source` at each version that stands in `template`, from the cache at `place` (empty: none); a model in a claim
    of the user as the spec names it."""
    content = json.dumps(template, default=str)
    if not place or source.scheme in MOUNTED:
        yield from (Model(told) for told in _sources(source, content))
    elif not in_pods(place):
        for folder in _find(VERSION_FOLDER, content):
            yield Model(ModelSource(Scheme.PVC, f"{place}/{folder}"))
    else:
        for pin in _pins(source, content):
            folder = f"{names.CACHE_FOLDER}/{FOLDER}/{pin.key}"
            yield Model(ModelSource(Scheme.POD, f"{place}/{folder}"), ((folder, pin.source),))


@dataclass(frozen=True, slots=True)
class _Now:
    """The Deployment as it is, with the adapter and the memo that render manifests to compare it with."""

    engine: Engine
    deployment: Mapping[str, Any] | None
    memo: Memo


def _budget(world: World, plain: RenderInput, now: _Now) -> int:
    """The startup budget in seconds: the measured one where the pods' template changes anyway, else the one that pods
    have.

    Two witnesses say whether the template changes: the template that runs, and the one that status had last. One is
    enough to keep the budget: the API server may have normalised the first, the second may be older than the last
    rollout.
    """
    measured = startup.budget(startup.starts(world.status), plain.spec.weights.bytes)
    running = _running_budget(plain, now)
    if max(measured, running) <= plain.container.startup_seconds:
        return 0  # what there would be without any measure, then and now
    if _is_template(plain, now):
        return running
    key = startup.template_key(find_deployment(rendering.render_again(plain, now.memo)))
    if text(world.status, "startup", "template") == key:
        return min(max(whole(world.status, "startup", "budgetSeconds"), 0), startup.MOST_SECONDS)
    return measured


def _running_budget(plain: RenderInput, now: _Now) -> int:
    """The startup budget of the running pods in seconds, from the progress deadline of their Deployment."""
    made = find_deployment(rendering.render_again(plain, now.memo))
    beside = whole(made, "spec", "progressDeadlineSeconds") - plain.container.startup_seconds
    return whole(now.deployment, "spec", "progressDeadlineSeconds") - beside


def _is_template(plain: RenderInput, now: _Now) -> bool:
    """True where the template that runs is that of `plain`, whatever budget it has."""
    running = _running_budget(plain, now)
    if not 0 < running <= startup.MOST_SECONDS:
        return False
    made = find_deployment(rendering.render_again(with_budget(plain, now.engine, running), now.memo))
    wanted, found = at(made, "spec", "template"), mapping(now.deployment, "spec", "template")
    return not first_difference(wanted, found) and not first_surplus(wanted, found)


def _keep_size(given: RenderInput, now: _Now) -> RenderInput:
    borne = text(now.deployment, "metadata", "annotations", names.ANNOTATION_SIZED_FOR)
    size = int(borne) if borne.isascii() and borne.isdecimal() and len(borne) <= 18 else 0
    if size == given.spec.weights.bytes:
        return given
    before = with_size(given, now.engine, size)
    same = text(now.deployment, "metadata", "annotations", names.ANNOTATION_MADE_OF) == given.made_of
    return before if same or _is_template(_keep_helper(before, now), now) else given


def _keep_helper(plain: RenderInput, now: _Now) -> RenderInput:
    before = with_helper(plain, helper_of(mapping(now.deployment, "spec", "template")))
    return before if before is plain or _is_template(before, now) else plain


def _pins(source: ModelSource, content: str) -> Iterator[Pin]:
    """The pins of `source` at the versions in `content`, for weights that pods fetch themselves."""
    for told in _sources(source, content) if source.scheme is not Scheme.S3 else ():
        location, _, digest = told.location.partition("@")
        if digest or told.revision:
            yield Pin(source.scheme, location, "", digest or told.revision)
    for digest in _find(_DIGEST, content) if source.scheme is Scheme.S3 else ():
        yield Pin(source.scheme, source.location, "", digest)


def _sources(source: ModelSource, content: str) -> Iterator[ModelSource]:
    """`source` at each version that stands in `content`, or else as the spec has it."""
    if source.scheme is Scheme.HF:
        yield from (replace(source, revision=one) for one in _find(_COMMIT, content))
    elif source.scheme is Scheme.OCI:
        yield from (ModelSource(Scheme.OCI, f"{untagged(source)}@{one}") for one in _find(_DIGEST, content))
    yield source


def _find(pattern: re.Pattern[str], content: str) -> list[str]:
    return list(dict.fromkeys(pattern.findall(content)))[:_MOST]
