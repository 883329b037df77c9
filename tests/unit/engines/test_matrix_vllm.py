"""Each row of vLLM against the adapter that is to obey it, and against the emulator's imitation of release 0.32."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engines.building import HEAD, SMALL_QWEN, spec
from tests.unit.engines.test_matrix import shown
from tests.unit.failing import failing

from speculative_lab.emulator.arguments import parse as parse_arguments
from speculative_lab.emulator.drafting import Drafting, Reaction, drafting
from speculative_lab.emulator.errors import ConfigError, LateError
from speculative_lab.emulator.speculative import checked, raw_config
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import AcceleratorRequest, DeploymentSpec, EngineType, Method, OffPolicy
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.rows import (
    CELLS,
    PLATFORMS,
    Cell,
    Extent,
    Platform,
    Variant,
    Version,
    find,
    show_version,
)
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.plan import plan

EMULATED: Version = (0, 32, 0)
ROWS = CELLS[EngineType.VLLM]
IMITATED = [
    cell
    for cell in ROWS
    if cell.since <= EMULATED < (cell.before or (99, 0, 0)) and cell.variant is not Variant.PARALLEL
]
RUNNERS = {"V1": "0", "V2": "1"}
RESOURCES = {
    Vendor.NVIDIA: "nvidia.com/gpu", Vendor.AMD: "amd.com/gpu", Vendor.GAUDI: "habana.ai/gaudi",
    Vendor.INTEL_GPU: "gpu.intel.com/xe", Vendor.NEURON: "aws.amazon.com/neuroncore", Vendor.TPU: "google.com/tpu",
    Vendor.CPU: "", Vendor.OTHER: "example.com/share",
}  # fmt: skip


def on(subject: DeploymentSpec, vendor: Vendor) -> DeploymentSpec:
    """The same on that vendor's accelerators, with an image of its own."""
    needed = subject.verifier.tensor_parallel_size * subject.verifier.pipeline_parallel_size
    count = 0 if vendor is Vendor.CPU else needed * subject.verifier.data_parallel_size
    request = AcceleratorRequest(RESOURCES[vendor] or "nvidia.com/gpu", per_replica=count)
    return replace(subject, accelerator=request, engine=replace(subject.engine, image="example.com/engine:1"))


def make_spec(
    method: Method, variant: Variant = Variant.PLAIN, version: Version = EMULATED, runner: str = "",
    vendor: Vendor = Vendor.NVIDIA, data: int = 1, pipeline: int = 1,
) -> DeploymentSpec:  # fmt: skip
    """A spec in these circumstances."""
    verifier: dict[str, Any] = {"data_parallel_size": data, "pipeline_parallel_size": pipeline}
    env = ({"name": "VLLM_USE_V2_MODEL_RUNNER", "value": RUNNERS[runner]},) if runner else ()
    source = None if method.draft_free else SMALL_QWEN if method is Method.DRAFT_MODEL else HEAD
    subject = spec(method, source=source, version=show_version(version), env=env, verifier=verifier)
    assert subject.speculator is not None
    drafter = replace(
        subject.speculator,
        parallel_drafting=variant is Variant.PARALLEL,
        heterogeneous_vocabulary=variant is Variant.HETEROGENEOUS,
    )
    return on(replace(subject, speculator=drafter), vendor)


def of(cell: Cell, version: Version) -> DeploymentSpec:
    """A spec that the row speaks of."""
    data, pipeline = (2 if extent is Extent.MANY else 1 for extent in (cell.data, cell.pipeline))
    return make_spec(cell.method, cell.variant, version, cell.runner, data=data, pipeline=pipeline)


def releases(cell: Cell) -> tuple[Version, ...]:
    """The first release of the row and a late one."""
    return (cell.since, (cell.since[0], cell.since[1], cell.since[2] + 7) if cell.before else (1, 7, 0))


def test_adapter_obeys_the_rows() -> None:
    assert failing(obeyed, ROWS, shown) == []


def obeyed(cell: Cell) -> None:
    for version in releases(cell):
        subject = of(cell, version)
        assert find(refusing.question_of(subject, version, cell.runner)) is cell
        engine = engine_for(subject)
        refused = engine.refusals(subject)
        assert refused == ()
        knobs = engine.knobs(subject)
        assert knobs.actuator is cell.actuator
        assert knobs.draft_passes_follow_k == cell.follows_k
        assert knobs.drafts_blocks == cell.drafts_blocks
        assert knobs.can_skip == cell.skips
        assert knobs.passes_at_zero == (0.0 if cell.skips else cell.passes_at_zero)
        running = replace(subject, speculation=replace(subject.speculation, off_policy=OffPolicy.KEEP_RUNNING))
        assert engine.knobs(running).passes_at_zero == cell.passes_at_zero


def emulated(subject: DeploymentSpec) -> Drafting:
    """How the emulator drafts with the container of `subject`. Raises what it refuses."""
    container = engine_for(subject).container(resolve(subject), KTable.constant(2, 256))
    raw = raw_config(parse_arguments(["serve", *container.args]))
    speculative = checked(raw or {}, subject.verifier.tensor_parallel_size)
    args = list(container.args)
    worker = args[args.index("--worker-extension-cls") + 1] if "--worker-extension-cls" in args else ""
    return drafting(speculative, {one["name"]: str(one.get("value", "")) for one in container.env}, worker)


@pytest.mark.parametrize("cell", IMITATED, ids=shown)
def test_emulator_behaves_as_the_row_says(cell: Cell) -> None:
    subject = of(cell, EMULATED)
    behaves = emulated(subject)
    assert behaves.runner == cell.runner
    if cell.actuator is Actuator.LIVE:
        assert behaves.reaction is (Reaction.FOLLOWS if cell.follows_k else Reaction.VERIFIES_LESS)
        assert behaves.passes_at_zero == cell.passes_at_zero
        assert behaves.skipped == cell.skips
        assert behaves.drafts_blocks == cell.drafts_blocks
    elif cell.data is not Extent.MANY:
        assert behaves.reaction is not Reaction.FOLLOWS, "a method that follows K could be turned in 0.32"


@pytest.mark.parametrize(
    ("method", "variant", "runner"),
    [
        *((method, Variant.PARALLEL, "V2") for method in (Method.EAGLE, Method.EAGLE3, Method.DRAFT_MODEL)),
        (Method.DRAFT_MODEL, Variant.HETEROGENEOUS, "V2"),
        *((method, Variant.PLAIN, "V2") for method in (Method.SUFFIX, Method.MEDUSA)),
        (Method.DSPARK, Variant.PLAIN, "V1"),
    ],
)
def test_a_form_that_a_runner_lacks_is_refused_and_by_the_emulator_as_well(
    method: Method, variant: Variant, runner: str
) -> None:
    subject = make_spec(method, variant, runner=runner)
    (refusal,) = engine_for(subject).refusals(subject)
    assert f"the {runner} model runner" in refusal.message
    assert "remove VLLM_USE_V2_MODEL_RUNNER" in refusal.message
    with pytest.raises((ConfigError, LateError)):
        emulated(subject)


@pytest.mark.parametrize("method", [Method.EAGLE3, Method.DFLASH])
def test_stages_of_a_pipeline_need_a_release_that_passes_states_between_them(method: Method) -> None:
    early = make_spec(method, version=(0, 31, 0), pipeline=2)
    (refusal,) = engine_for(early).refusals(early)
    assert "pipelineParallelSize: 1" in refusal.message
    assert "engine.version 0.32.0 or newer" in refusal.message
    late = make_spec(method, version=(0, 32, 0), pipeline=2)
    assert engine_for(late).refusals(late) == ()
    assert plan(late).runner == "V2"


def test_adapter_obeys_the_platforms() -> None:
    rows = [row for row in PLATFORMS if row.engine == "vLLM"]
    assert failing(obeyed_on, itertools.product(rows, Method), lambda case: (case[0].vendor, *case)) == []


def obeyed_on(case: tuple[Platform, Method]) -> None:
    row, method = case
    version = row.newest or (max(row.since, EMULATED) if row.before is None else max(row.since, (0, 11, 0)))
    subject = make_spec(method, version=version, vendor=row.vendor)
    found = engine_for(subject).refusals(subject)
    if method not in row.methods:
        assert [one.field for one in found] == ["spec.speculator.method"]
        assert not row.remedy or row.remedy in found[0].message
        return
    if find(refusing.question_of(subject, version, plan(subject).runner)) is None:
        assert found, "the release has no such method"
        return
    assert found == ()
    order = (Actuator.LIVE, Actuator.TABLE, Actuator.RESTART)
    assert order.index(plan(subject).actuator) >= order.index(row.actuator)


@pytest.mark.parametrize("vendor", [Vendor.GAUDI, Vendor.NEURON, Vendor.TPU])
def test_releases_that_a_plug_in_is_not_known_for(vendor: Vendor) -> None:
    newer = replace(make_spec(Method.EAGLE3, version=(0, 35, 0), vendor=vendor))
    assert engine_for(newer).refusals(newer) == (), "the user's image has it"
    bare = replace(newer, engine=replace(newer.engine, image=""))
    fields = {one.field: one.message for one in engine_for(bare).refusals(bare)}
    assert "engine.image" in fields["spec.engine.version"]
    assert "0.35.0" in fields["spec.engine.version"]


@pytest.mark.parametrize(
    ("vendor", "version", "changed", "field"),
    [
        (Vendor.NEURON, (0, 24, 0), {"pipeline": 2}, "spec.verifier.pipelineParallelSize"),
        (Vendor.NEURON, (0, 18, 0), {}, "spec.engine.version"),
        (Vendor.GAUDI, (0, 11, 0), {}, "spec.engine.version"),
        (Vendor.CPU, (0, 32, 0), {"runner": "V2"}, "spec.engine.env"),
    ],
)
def test_what_a_platform_lacks(vendor: Vendor, version: Version, changed: dict[str, Any], field: str) -> None:
    subject = make_spec(Method.EAGLE3, version=version, vendor=vendor, **changed)
    assert [one.field for one in engine_for(subject).refusals(subject)] == [field]


def test_cells_cover_both_runners_at_every_release() -> None:
    """A gap would be a refusal that nobody meant: from a method's first release on, some runner serves it."""
    for method, version in itertools.product(Method, [(0, 25, 1), (0, 28, 0), (0, 31, 0), (0, 32, 0), (0, 40, 1)]):
        subject = make_spec(method, version=version)
        asked = refusing.question_of(subject, version, plan(subject).runner)
        cell = find(asked)
        assert cell is not None
