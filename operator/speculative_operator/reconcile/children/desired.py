"""The children as they should be: container, strategy and replicas put together for `render`. Called by `tick`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.memo import Memo, digest
from speculative_operator.domain.reasons import Reason, reason_of
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, RolloutStrategy
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.reconcile.observed import route, startup
from speculative_operator.reconcile.pair.pinning import PairedSpec
from speculative_operator.reconcile.snapshot.pods import configs_of
from speculative_operator.reconcile.snapshot.tables import Leaving
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.table.active_table import SUSPENDED_VERSION, ActiveTable
from speculative_operator.reconcile.table.tables import config_name
from speculative_operator.render import Capabilities, RenderInput, payload, render, resolved, table_config
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
    tables: tuple[ReadBy, ...] = ()
    """ConfigMaps of tables; the one for pods as the spec asks for them comes first."""

    @property
    def workload(self) -> Mapping[str, Any]:
        """The manifest of the Deployment."""
        return _deployment_in(self.manifests)


def desired_children(
    world: Snapshot,
    choice: PairedSpec,
    engine: Engine,
    active: ActiveTable,
    made_of: str,
    own: frozenset[str] = frozenset(),
    leaving: tuple[Leaving, ...] = (),
    *,
    makes_room: bool = False,
) -> Desired:
    """Every child of the object, with pods of `choice` and the active table. `made_of` becomes an annotation of the
    Deployment, `own` are the labels of its pods, `leaving` the tables of pods of former pairs. `makes_room`: an old pod
    may end first, for the new one that waits for a node now and for no other. Raises RenderError."""
    spec, knobs = choice.pinned.without_speculator() if active.removed else choice.pinned, engine.knobs(choice.by_name)
    config = config_name(world, spec, own)
    given = replace(_input(world, engine, active, spec), made_of=made_of, table_config=config, knobs=knobs)
    inp = _keep_inputs(world, engine, given)
    manifests = render_again(inp, world.memo)
    if makes_room and template_in(manifests, world.spec.uid) == world.workload.made_as:
        manifests = render_again(replace(inp, strategy=OLD_FIRST), world.memo)
    if active.suspended_until and active.table is not None:
        zero = KTable.constant(0, active.table.max_batch)
        suspended = table_config(world.spec, config, zero, SUSPENDED_VERSION, until=active.suspended_until)
        manifests = tuple(suspended if one["metadata"]["name"] == config else one for one in manifests)
    tables = (table_config(world.spec, one.config, one.table, one.version) for one in leaving)
    wanted = (ReadBy(config, active.version, own | {""}),) if inp.live else ()
    if active.suspended_until:
        wanted = (ReadBy(config, SUSPENDED_VERSION, own | {""}, Reason.DRAFTS_SUSPENDED),)
    others = tuple(ReadBy(one.config, one.version, frozenset({one.pair}), reason_of(one.reason)) for one in leaving)
    return Desired(
        (*_payload(world, manifests), *tables, *manifests),
        inp.container.startup_seconds,
        (*wanted, *others),
    )


def _payload(world: Snapshot, manifests: tuple[Mapping[str, Any], ...]) -> Iterator[Mapping[str, Any]]:
    """The ConfigMap of the plug-in, where it is missing and pods mount it, or will."""
    wanted = configs_of(_deployment_in(manifests)["spec"]["template"])
    mounted = {one.get(PAYLOAD_VOLUME) for one in (wanted, world.workload.configs)}
    if payload.name() in mounted - set(world.payloads):
        yield payload.payload_config(world.spec.namespace)


def _input(world: Snapshot, engine: Engine, active: ActiveTable, spec: ResolvedSpec) -> RenderInput:
    return RenderInput(
        spec=spec,
        container=_container(engine, spec, active.table),
        table=None if active.removed else active.table,
        table_version=active.version,
        capabilities=_capabilities(world),
        strategy=strategy_at_rest(world.spec),
        owns_replicas=not world.workload.scaler,
        waiting=active.table if active.removed else None,
        trials=active.trials,
        canary=route.canary(world),
    )


def _capabilities(world: Snapshot) -> Capabilities:
    """What the cluster offers, with the labels that the object's PodMonitor bears already: a Prometheus may choose it
    by them, though another one, which somebody installed since, asks for others."""
    monitor = world.children.get(("PodMonitor", names.child(world.spec.name)))
    borne = {key: value for key, value in (monitor.labels if monitor is not None else {}).items() if "/" not in key}
    labels = borne | dict(world.capabilities.monitor_labels)
    return replace(world.capabilities, monitor_labels=tuple(sorted(labels.items())))


def _keep_inputs(world: Snapshot, engine: Engine, given: RenderInput) -> RenderInput:
    """`given` with the size of weights, the helping image and the startup budget that running pods were made of, as
    long as nothing else changes: what was learned since, and a new release of the operator, are no reason to replace
    them. Else with a budget by the measured starts."""
    record = world.workload.resolved
    if record is not None:
        sized = _with_size(given, engine, record.bytes)
        before = _with_budget(sized, engine, record.startup_seconds)
        if record.job_image:
            before = replace(before, capabilities=replace(before.capabilities, job_image=record.job_image))
        if template_in(render_again(before, world.memo), world.spec.uid) == record.template:
            return before
        given = sized if world.workload.made_of == given.made_of else given
    return _with_budget(given, engine, startup.budget(world.status.starts, given.spec.weights.bytes))


def _with_budget(inp: RenderInput, engine: Engine, seconds: int) -> RenderInput:
    """`inp` with a startup budget of at least `seconds`."""
    if seconds <= inp.container.startup_seconds:
        return inp
    return _with_spec(inp, engine, replace(inp.spec, engine=replace(inp.spec.engine, startup_seconds=seconds)))


def _with_size(inp: RenderInput, engine: Engine, size: int) -> RenderInput:
    """`inp` for weights of `size` bytes."""
    if size == inp.spec.weights.bytes:
        return inp
    return _with_spec(inp, engine, replace(inp.spec, weights=replace(inp.spec.weights, bytes=size)))


def _with_spec(inp: RenderInput, engine: Engine, spec: ResolvedSpec) -> RenderInput:
    """`inp` for another `spec`, with the container that `engine` makes of it."""
    return replace(inp, spec=spec, container=_container(engine, spec, inp.waiting or inp.table))


def _container(engine: Engine, spec: ResolvedSpec, table: KTable | None) -> EngineContainer:
    """The engine's container for `table`; for K = 0 where there is none."""
    return engine.container(spec, table or KTable.constant(0, spec.verifier.max_num_seqs or 1))


def render_again(inp: RenderInput, memo: Memo) -> tuple[Mapping[str, Any], ...]:
    """What `render(inp)` returns, at a tenth of the cost where it was rendered lately. Raises RenderError like it.

    The memo holds it compressed (6 KiB for an object's children), and it is read anew each time: no caller can change
    another's."""
    packed = memo.get(("render", digest(inp)), lambda: zlib.compress(json.dumps(render(inp)).encode(), 1))
    return tuple(json.loads(zlib.decompress(packed)))


def template_in(manifests: tuple[Mapping[str, Any], ...], uid: str) -> str:
    """Hash of the pod template in manifests of the object `uid`."""
    return resolved.template_of(_deployment_in(manifests), uid)


def _deployment_in(manifests: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    return next(one for one in manifests if one["kind"] == "Deployment")


RECREATE: dict[str, Any] = {"type": "Recreate"}
NEW_FIRST: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
"""The strategy at rest: whoever replaces pods, a new one that finds no node waits and takes nothing away."""
OLD_FIRST: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
"""The strategy while a new pod waits for the place of an old one (kserve#4618): one old pod ends for it."""


def strategy_at_rest(spec: DeploymentSpec) -> dict[str, Any]:
    """The workload's `spec.strategy` while no new pod waits for a node."""
    return RECREATE if spec.rollout_strategy is RolloutStrategy.RECREATE else NEW_FIRST
