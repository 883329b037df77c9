"""The children as they should be: container, strategy and replicas put together for `render`. Called by `tick`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.memo import Memo
from speculative_operator.domain.reading import mapping, text
from speculative_operator.domain.reasons import Reason, reason_of
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, RolloutStrategy
from speculative_operator.engines.base import Engine
from speculative_operator.reconcile import formerly, own_rollouts, rendering, route, startup
from speculative_operator.reconcile.active_table import ActiveTable
from speculative_operator.reconcile.pods import configs_of, has_other_scaler
from speculative_operator.reconcile.rendering import (
    container_table,
    find_deployment,
    with_budget,
    with_helper,
    with_size,
)
from speculative_operator.reconcile.room import Room
from speculative_operator.reconcile.tables import Leaving, config_name
from speculative_operator.reconcile.world import World
from speculative_operator.render import RenderInput, payload, resolved, table_config
from speculative_operator.render.podspec import PAYLOAD_VOLUME


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

    @property
    def workload(self) -> Mapping[str, Any]:
        """The manifest of the Deployment."""
        return find_deployment(self.manifests)


def desired_children(
    world: World,
    spec: ResolvedSpec,
    engine: Engine,
    active: ActiveTable,
    made_of: str,
    own: frozenset[str] = frozenset(),
    leaving: tuple[Leaving, ...] = (),
) -> Desired:
    """Every child of the object, with pods of `spec` and the active table. `made_of` becomes an annotation of the
    Deployment, `own` are the labels of its pods, `leaving` the tables of pods of former pairs. Raises RenderError."""
    spec = spec.without_speculator() if active.removed else spec
    deployment = world.deployment
    config = config_name(world, spec, own)
    given = replace(_input(world, engine, active, spec, deployment), made_of=made_of, table_config=config)
    record = resolved.read(deployment, world.spec.uid)
    plain, seconds = _keep_inputs(world, engine, given, record)
    manifests = rendering.render_again(plain, world.memo)
    template = startup.template_key(find_deployment(manifests))
    inp = with_budget(plain, engine, seconds)
    if inp is not plain:
        manifests = rendering.render_again(inp, world.memo)
    if deployment is not None:
        manifests = _keep_strategy(world, inp, manifests, record)
    wanted = (ReadBy(config, active.version, own | {""}),) if inp.live else ()
    others = tuple(ReadBy(one.config, one.version, frozenset({one.pair}), reason_of(one.reason)) for one in leaving)
    return Desired(
        (*_payload(world, manifests), *_leaving_tables(world, leaving), *manifests),
        inp.container.startup_seconds,
        template,
        (*wanted, *others),
    )


def _payload(world: World, manifests: tuple[Mapping[str, Any], ...]) -> Iterator[Mapping[str, Any]]:
    """The ConfigMap of the plug-in, where it is missing and pods mount it, or will."""
    templates = (mapping(one, "spec", "template") for one in (find_deployment(manifests), world.deployment))
    mounted = {configs_of(one).get(PAYLOAD_VOLUME) for one in templates}
    if payload.name() in mounted - set(world.payloads):
        yield payload.payload_config(world.spec.namespace)


def _leaving_tables(world: World, leaving: tuple[Leaving, ...]) -> Iterator[Mapping[str, Any]]:
    for one in leaving:
        yield table_config(world.spec, one.config, one.table, one.version)


def _input(
    world: World, engine: Engine, active: ActiveTable, spec: ResolvedSpec, deployment: Mapping[str, Any] | None
) -> RenderInput:
    owned = not has_other_scaler(deployment)
    return RenderInput(
        spec=spec,
        container=engine.container(spec, container_table(spec, active.table)),
        table=None if active.removed else active.table,
        table_version=active.version,
        capabilities=world.capabilities,
        strategy=_strategy(world, active, owned),
        owns_replicas=owned,
        waiting=active.table if active.removed else None,
        trials=active.trials,
        canary=route.canary(world),
    )


def _strategy(world: World, active: ActiveTable, owned: bool) -> Mapping[str, Any]:
    """The Deployment's `spec.strategy`. A stalled rollout goes back by the strategy with which it went: Recreate would
    end its serving pods at once."""
    if active.undone:
        found = mapping(world.deployment, "spec", "strategy")
        return next((one for one in EVERY if one == found), NEW_FIRST)
    last = own_rollouts.read(world.status).last
    ours = last is not None and (last.version, last.generation) == (active.version, world.spec.generation)
    if ours and last is not None and last.keeps_capacity:
        return NEW_FIRST
    return choose_strategy(world.spec, world.room, owns_replicas=owned)


def _keep_inputs(
    world: World, engine: Engine, given: RenderInput, record: resolved.Resolved | None
) -> tuple[RenderInput, int]:
    """`given` with the size of weights and the helping image that running pods were made of, and the startup budget
    of these in seconds, as long as nothing else changes: what was learned since, and a new release of the operator, are
    no reason to replace them. Else with a budget by the measured starts."""
    if world.deployment is not None and record is None:
        return formerly.keep_inputs(world, engine, given)
    plain = given
    if record is not None:
        sized = with_size(given, engine, record.bytes)
        before = with_helper(sized, record.job_image)
        if _template_of(with_budget(before, engine, record.startup_seconds), world.memo) == record.template:
            return before, record.startup_seconds
        same = text(world.deployment, "metadata", "annotations", names.ANNOTATION_MADE_OF) == given.made_of
        plain = sized if same else given
    return plain, startup.budget(startup.starts(world.status), plain.spec.weights.bytes)


def _template_of(inp: RenderInput, memo: Memo) -> str:
    """Hash of the pod template that is rendered from `inp`."""
    made = find_deployment(rendering.render_again(inp, memo))
    return text(made, "metadata", "annotations", names.ANNOTATION_TEMPLATE)


def _keep_strategy(
    world: World,
    inp: RenderInput,
    manifests: tuple[Mapping[str, Any], ...],
    record: resolved.Resolved | None,
) -> tuple[Mapping[str, Any], ...]:
    """`manifests` with the strategy last applied, while nothing else changed.

    The operator looks for room only when pods are about to be replaced, and only then does the choice matter.
    """
    applied = text(world.deployment, "metadata", "annotations", names.ANNOTATION_HASH)
    possible = possible_strategies(inp.spec)
    if record is None:
        return formerly.keep_strategy(world, inp, manifests, applied, possible)
    if record.strategy not in possible:
        return manifests
    before = rendering.render_again(replace(inp, strategy=record.strategy), world.memo)
    made = text(find_deployment(before), "metadata", "annotations", names.ANNOTATION_HASH)
    return before if made == applied else manifests


RECREATE: dict[str, Any] = {"type": "Recreate"}
NEW_FIRST: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
OLD_FIRST: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
EVERY = (RECREATE, NEW_FIRST, OLD_FIRST)


def choose_strategy(spec: DeploymentSpec, room: Room | None, *, owns_replicas: bool = True) -> dict[str, Any]:
    """The Deployment's `spec.strategy`. `room`: for one more pod; None when unknown.

    A new pod that waits for the accelerator of the pod it replaces waits for ever (kserve#4618). So, for `Auto`:

    - known to be free for one more replica: the new pod comes first, serving never dips;
    - would not fit even without the old one: likewise, for the old pod's end would help nobody;
    - else with several replicas: one goes first, the others serve on;
    - else: the only pod goes first. Serving pauses for one start, which no choice could avoid without a spare one.

    An explicit RollingUpdate starts the new pod first, unless it is known that this would wait for ever. Where others
    set the Deployment's replicas (`owns_replicas` False), the spec's say nothing: there may be many, and all at once
    would go. A single one is replaced as by Recreate, and the strategy does not change with each step of theirs.
    """
    if spec.rollout_strategy is RolloutStrategy.RECREATE:
        return RECREATE
    if spec.rollout_strategy is RolloutStrategy.ROLLING_UPDATE:
        return OLD_FIRST if room is Room.TAKEN else NEW_FIRST
    if room in (Room.FREE, Room.NOWHERE):
        return NEW_FIRST
    return OLD_FIRST if spec.replicas > 1 or not owns_replicas else RECREATE


def possible_strategies(spec: DeploymentSpec) -> tuple[dict[str, Any], ...]:
    """Every strategy that `choose_strategy` may have chosen for `spec`, in whatever state the cluster was then."""
    if spec.rollout_strategy is RolloutStrategy.RECREATE:
        return (RECREATE,)
    return EVERY if spec.rollout_strategy is RolloutStrategy.AUTO else (NEW_FIRST, OLD_FIRST)
