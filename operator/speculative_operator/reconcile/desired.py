"""The children as they should be: container, strategy and replicas put together for `render`. Called by `tick`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.memo import Memo, digest
from speculative_operator.domain.reading import at, mapping, mappings, text, whole
from speculative_operator.domain.reasons import Reason, reason_of
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine
from speculative_operator.reconcile import own_rollouts, route, startup, strategy
from speculative_operator.reconcile.drift import first_difference, first_surplus
from speculative_operator.reconcile.rollout import has_other_scaler
from speculative_operator.reconcile.tables import Leaving, config_name
from speculative_operator.reconcile.truth import InForce
from speculative_operator.reconcile.world import World
from speculative_operator.render import RenderInput, render, table_config


@dataclass(frozen=True, slots=True)
class ReadBy:
    """The ConfigMap of a table, and the pods that read it."""

    config: str
    version: int
    pairs: frozenset[str]
    """Labels of the pods that read it."""
    reason: Reason | None = None
    """Why the table changed, where its reason is not that of the other children; else None."""


@dataclass(frozen=True, slots=True)
class Desired:
    """Manifests in the order in which they are best applied."""

    manifests: tuple[Mapping[str, Any], ...]
    startup_seconds: int = 0
    """Startup budget of the pods."""
    template: str = ""
    """Key of the pod template (`startup.template_key`), which does not depend on measured starts."""
    tables: tuple[ReadBy, ...] = ()
    """ConfigMaps of tables; the one for pods as the spec asks for them comes first."""

    def find(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """The manifest of one child; None without it."""
        wanted = (kind, name)
        return next((one for one in self.manifests if (one["kind"], one["metadata"]["name"]) == wanted), None)


def desired_children(
    world: World,
    engine: Engine,
    in_force: InForce,
    made_of: str,
    own: frozenset[str] = frozenset(),
    leaving: tuple[Leaving, ...] = (),
) -> Desired:
    """Every child of the object, with the active table. `made_of` becomes an annotation of the Deployment, `own` are
    the labels of its pods, `leaving` the tables of pods of former pairs. Raises RenderError."""
    spec = world.spec.without_speculator() if in_force.hard_off else world.spec
    deployment = world.deployment
    config = config_name(world, spec, own)
    given = replace(_input(world, engine, in_force, spec, deployment), made_of=made_of, table_config=config)
    now = _Now(engine, deployment, world.memo)
    plain = _keep_helper(_keep_size(given, now), now)
    manifests = render_again(plain, world.memo)
    template = startup.template_key(_deployment(manifests))
    seconds = _budget(world, plain, template, now)
    inp = _with_budget(plain, engine, seconds)
    if inp is not plain:
        manifests = render_again(inp, world.memo)
    if deployment is not None:
        applied = text(deployment, "metadata", "annotations", names.ANNOTATION_HASH)
        manifests = _keep_strategy(inp, manifests, applied, world.memo)
    wanted = (ReadBy(config, in_force.version, own | {""}),) if inp.live else ()
    others = tuple(ReadBy(one.config, one.version, frozenset({one.pair}), reason_of(one.reason)) for one in leaving)
    return Desired(
        (*_leaving_tables(world, leaving), *manifests), inp.container.startup_seconds, template, (*wanted, *others)
    )


@dataclass(frozen=True, slots=True)
class _Now:
    """The Deployment as it is, with the adapter and the memo that render manifests to compare it with."""

    engine: Engine
    deployment: Mapping[str, Any] | None
    memo: Memo


def render_again(inp: RenderInput, memo: Memo) -> tuple[Mapping[str, Any], ...]:
    """What `render(inp)` returns, at a tenth of the cost where it was rendered lately. Raises RenderError like it.

    The memo holds it compressed (6 KiB for an object's children), and it is read anew each time: no caller can change
    another's."""
    packed = memo.get(("render", digest(inp)), lambda: zlib.compress(json.dumps(render(inp)).encode(), 1))
    return tuple(json.loads(zlib.decompress(packed)))


def _leaving_tables(world: World, leaving: tuple[Leaving, ...]) -> Iterator[Mapping[str, Any]]:
    for one in leaving:
        yield table_config(world.spec, one.config, one.table, one.version, per_request=one.per_request)


def _input(
    world: World, engine: Engine, in_force: InForce, spec: DeploymentSpec, deployment: Mapping[str, Any] | None
) -> RenderInput:
    owned = not has_other_scaler(deployment)
    return RenderInput(
        spec=spec,
        container=engine.container(spec, _table(spec, in_force.table)),
        table=None if in_force.hard_off else in_force.table,
        table_version=in_force.version,
        capabilities=world.capabilities,
        strategy=_strategy(world, in_force, owned),
        owns_replicas=owned,
        waiting=in_force.table if in_force.hard_off else None,
        per_request=in_force.per_request,
        tries=in_force.tries,
        canary=route.canary(world),
    )


def _strategy(world: World, in_force: InForce, owned: bool) -> Mapping[str, Any]:
    """The Deployment's `spec.strategy`. A stalled rollout goes back by the strategy with which it went: Recreate would
    end its serving pods at once."""
    if in_force.undone:
        found = mapping(world.deployment, "spec", "strategy")
        return next((one for one in strategy.EVERY if one == found), strategy.NEW_FIRST)
    last = own_rollouts.read(world.status).last
    ours = last is not None and (last.version, last.generation) == (in_force.version, world.spec.generation)
    if ours and last is not None and last.keeps_capacity:
        return strategy.NEW_FIRST
    return strategy.choose(world.spec, world.room, owns_replicas=owned)


def _table(spec: DeploymentSpec, table: KTable | None) -> KTable:
    return table or KTable.constant(0, spec.verifier.max_num_seqs or 1)


def _deployment(manifests: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    return next(one for one in manifests if one["kind"] == "Deployment")


def _with_budget(inp: RenderInput, engine: Engine, seconds: int) -> RenderInput:
    """`inp` with a startup budget of at least `seconds`."""
    if seconds <= inp.container.startup_seconds:
        return inp
    spec = replace(inp.spec, engine=replace(inp.spec.engine, startup_seconds=seconds))
    table = inp.waiting or inp.table
    return replace(inp, spec=spec, container=engine.container(spec, _table(spec, table)))


def _budget(world: World, plain: RenderInput, template: str, now: _Now) -> int:
    """The startup budget in seconds: the measured one where the pods' template changes anyway, else the one that pods
    have.

    Two witnesses say whether the template changes: the template that runs, and the one that status had last. One is
    enough to keep the budget: the API server may have normalised the first, the second may be older than the last
    rollout.
    """
    measured = startup.budget(startup.starts(world.status), plain.spec.weights.bytes)
    if now.deployment is None:
        return measured
    running = _running_budget(plain, now)
    if max(measured, running) <= plain.container.startup_seconds:
        return 0  # what there would be without any measure, then and now
    if _is_template(plain, now):
        return running
    if text(world.status, "startup", "template") == template:
        return min(max(whole(world.status, "startup", "budgetSeconds"), 0), startup.MOST_SECONDS)
    return measured


def _running_budget(plain: RenderInput, now: _Now) -> int:
    """The startup budget of the running pods in seconds, from the progress deadline of their Deployment."""
    made = _deployment(render_again(plain, now.memo))
    beside = whole(made, "spec", "progressDeadlineSeconds") - plain.container.startup_seconds
    return whole(now.deployment, "spec", "progressDeadlineSeconds") - beside


def _is_template(plain: RenderInput, now: _Now) -> bool:
    """True where the template that runs is that of `plain`, whatever budget it has."""
    running = _running_budget(plain, now)
    if not 0 < running <= startup.MOST_SECONDS:
        return False
    made = _deployment(render_again(_with_budget(plain, now.engine, running), now.memo))
    wanted, found = at(made, "spec", "template"), mapping(now.deployment, "spec", "template")
    return not first_difference(wanted, found) and not first_surplus(wanted, found)


def _keep_size(given: RenderInput, now: _Now) -> RenderInput:
    """`given` for weights of the size that pods were made for, as long as nothing else changes: a size that was learned
    since is no reason to replace them."""
    borne = text(now.deployment, "metadata", "annotations", names.ANNOTATION_SIZED_FOR)
    size = int(borne) if borne.isascii() and borne.isdecimal() and len(borne) <= 18 else 0
    if now.deployment is None or size == given.spec.weights.bytes:
        return given
    spec = replace(given.spec, weights=replace(given.spec.weights, bytes=size))
    container = now.engine.container(spec, _table(spec, given.waiting or given.table))
    before = replace(given, spec=spec, container=container)
    same = text(now.deployment, "metadata", "annotations", names.ANNOTATION_MADE_OF) == given.made_of
    return before if same or _is_template(_keep_helper(before, now), now) else given


def _keep_helper(plain: RenderInput, now: _Now) -> RenderInput:
    """`plain` with the operator's image that helps the engine in the pods that run, as long as nothing else changes: a
    new release of the operator is no reason to replace them."""
    containers = mappings(now.deployment, "spec", "template", "spec", "initContainers")
    helpers = (names.JOB_CONTAINER, names.COMPILED_SEED)
    image = next((text(one, "image") for one in containers if text(one, "name") in helpers), "")
    if now.deployment is None or image in ("", plain.capabilities.job_image):
        return plain
    before = replace(plain, capabilities=replace(plain.capabilities, job_image=image))
    return before if _is_template(before, now) else plain


def _keep_strategy(
    inp: RenderInput, manifests: tuple[Mapping[str, Any], ...], applied: str, memo: Memo
) -> tuple[Mapping[str, Any], ...]:
    """The manifests with the strategy last applied, while nothing else changed.

    The operator looks for room only when pods are about to be replaced, and only then does the choice matter.
    """
    hashes = {one["metadata"]["annotations"][names.ANNOTATION_HASH] for one in manifests}
    if applied in hashes:
        return manifests
    for other in strategy.possible(inp.spec):
        candidate = render_again(replace(inp, strategy=other), memo)
        if any(one["metadata"]["annotations"][names.ANNOTATION_HASH] == applied for one in candidate):
            return candidate
    return manifests
