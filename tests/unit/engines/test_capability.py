from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.building import spec

from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.matrix.rows import Version, parse_version
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.plan import Runner, boot_schedule, plan

V1, V2 = {"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}, {"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}


@pytest.mark.parametrize(
    ("method", "release", "actuator", "runner"),
    [
        (Method.EAGLE3, "0.32.1", Actuator.LIVE, Runner.V2),
        (Method.DRAFT_MODEL, "0.32.0", Actuator.LIVE, Runner.V2),
        (Method.DFLASH, "0.32.0", Actuator.LIVE, Runner.V2),
        (Method.DSPARK, "0.32.0", Actuator.LIVE, Runner.V2),
        (Method.NGRAM_GPU, "0.32.0", Actuator.RESTART, Runner.V2),
        (Method.SUFFIX, "0.32.0", Actuator.RESTART, Runner.V1),
        (Method.MEDUSA, "0.32.0", Actuator.RESTART, Runner.V1),
        (Method.MEDUSA, "0.33.0", Actuator.RESTART, Runner.V2),
        # V2 drafts in full before 0.32 whatever the schedule says: V1 is asked for, and what has only V2 restarts
        (Method.EAGLE3, "0.31.0", Actuator.LIVE, Runner.V1),
        (Method.DSPARK, "0.31.0", Actuator.RESTART, Runner.V2),
        (Method.EAGLE3, "0.24.0", Actuator.LIVE, Runner.V1),
        (Method.EAGLE3, "0.23.0", Actuator.RESTART, Runner.V1),
        (Method.EAGLE3, "0.11.0+rhai5", Actuator.RESTART, Runner.V1),
        # newer than those that were run: as the newest known, where the plug-in finds its hooks
        (Method.EAGLE3, "0.34.0", Actuator.LIVE, Runner.V2),
        (Method.DRAFT_MODEL, "1.0.0", Actuator.LIVE, Runner.V2),
    ],
)
def test_actuator_and_runner(method: Method, release: str, actuator: Actuator, runner: Runner) -> None:
    planned = plan(spec(method, version=release))
    assert (planned.actuator, planned.runner) == (actuator, runner)


@pytest.mark.parametrize("release", ["0.24.0", "0.28.0", "0.32.0", "0.40.0"])
def test_data_parallelism_leaves_restart(release: str) -> None:
    assert plan(spec(version=release, verifier={"data_parallel_size": 2})).actuator is Actuator.RESTART


def test_users_runner_wins_and_counts() -> None:
    for env in ((), (V2,)):
        on_v2 = spec(Method.DRAFT_MODEL, env=env)
        assert (plan(on_v2).runner, plan(on_v2).required_runner) == (Runner.V2, None)
        assert engine_for(on_v2).knobs(on_v2).can_skip
        assert engine_for(on_v2).knobs(on_v2).full_graphs, "V2 captures full graphs for each K"
    on_v1 = spec(Method.DRAFT_MODEL, env=(V1,))
    assert (plan(on_v1).runner, plan(on_v1).required_runner) == (Runner.V1, None)
    knobs = engine_for(on_v1).knobs(on_v1)
    assert (knobs.can_skip, knobs.passes_at_zero, knobs.draft_passes_follow_k) == (False, 1.0, True)
    assert not knobs.full_graphs
    assert plan(spec(Method.DSPARK, env=(V1,))).actuator is Actuator.RESTART


def test_static_constant_is_plain_flags_and_static_table_is_live() -> None:
    constant = spec(Method.DRAFT_MODEL, mode=Mode.STATIC, num_speculative_tokens=5)
    assert (plan(constant).actuator, plan(constant).ks, plan(constant).required_runner) == (
        Actuator.RESTART,
        (5,),
        None,
    )
    table = KTable.from_rows([[1, 8, 4], [9, 64, 1], [65, 256, 0]])
    assert plan(spec(mode=Mode.STATIC, schedule=table)).actuator is Actuator.LIVE
    assert plan(spec(mode=Mode.STATIC, schedule=table)).ks == (0, 1, 4)
    assert plan(spec(mode=Mode.STATIC, schedule=table, version="0.34.0")).actuator is Actuator.LIVE


@pytest.mark.parametrize(
    ("subject", "runner"),
    [
        (spec(Method.DRAFT_MODEL, version="0.31.0"), Runner.V1),
        (spec(Method.NGRAM, version="0.24.0"), Runner.V1),
        (spec(Method.DRAFT_MODEL, version="0.31.0", env=(V1,)), None),
        (spec(Method.DRAFT_MODEL), None),
        (spec(Method.SUFFIX), None),
        (spec(Method.MEDUSA), None),
    ],
)
def test_a_runner_is_asked_for_only_before_the_engine_chooses_right(
    subject: DeploymentSpec, runner: Runner | None
) -> None:
    assert plan(subject).required_runner is runner


def test_a_draft_model_without_the_worker_drafts_in_full() -> None:
    """Such as in pods whose plug-in is inert, once the user has accepted that their K changes by rollouts."""
    subject = resolve(spec(Method.DRAFT_MODEL))
    subject = replace(subject, engine=replace(subject.engine, live=False))
    knobs = engine_for(subject).knobs(subject)
    assert (knobs.actuator, knobs.draft_passes_follow_k, knobs.can_skip) == (Actuator.TABLE, False, False)
    assert knobs.passes_at_zero == max(knobs.ks)


@pytest.mark.parametrize("nothing", [spec(None), spec(mode=Mode.DISABLED)])
def test_without_drafts_there_is_nothing_to_turn(nothing: object) -> None:
    assert plan(nothing).actuator is Actuator.NONE  # type: ignore[arg-type]  # parametrize loses the type
    knobs = engine_for(nothing).knobs(nothing)  # type: ignore[arg-type]  # the same
    assert (knobs.actuator, knobs.ks, knobs.max_batch) == (Actuator.NONE, (0,), 256)


@pytest.mark.parametrize(
    ("given_fields", "ks"),
    [
        ({"max_speculative_tokens": 8}, (0, 1, 3, 7)),
        ({"max_speculative_tokens": 15}, (0, 1, 3, 7, 15)),
        ({"max_speculative_tokens": 1}, (0, 1)),
        ({"max_speculative_tokens": 2}, (0, 1, 2)),
        ({"max_speculative_tokens": 5}, (0, 1, 3, 5)),
        ({"max_speculative_tokens": 8, "num_speculative_tokens": 4}, (0, 1, 3, 4, 7)),
        ({"max_speculative_tokens": 8, "off_policy": OffPolicy.NEVER}, (1, 3, 7)),
        ({"max_speculative_tokens": 8, "off_policy": OffPolicy.REMOVE}, (0, 1, 3, 7)),
    ],
)
def test_k_are_thinned_where_each_costs_graphs(given_fields: dict[str, object], ks: tuple[int, ...]) -> None:
    subject = spec(**given_fields)  # type: ignore[arg-type]  # a mixture of fields
    assert engine_for(subject).knobs(subject).ks == ks


def test_every_k_where_graphs_are_piecewise() -> None:
    subject = spec(Method.DRAFT_MODEL, max_speculative_tokens=5, env=(V1,))
    assert engine_for(subject).knobs(subject).ks == (0, 1, 2, 3, 4, 5)


def test_zero_by_restart_is_a_pod_without_drafter_which_only_remove_allows() -> None:
    kept, removed = (spec(Method.SUFFIX, off_policy=policy) for policy in (OffPolicy.KEEP_RUNNING, OffPolicy.REMOVE))
    assert 0 not in plan(kept).ks
    assert 0 in plan(removed).ks


def test_boot_schedule_by_value() -> None:
    assert boot_schedule((0, 1, 3, 7), 256) == [[1, 252, 1], [253, 253, 7], [254, 254, 3], [255, 256, 0]]
    assert boot_schedule((0, 1, 3), 512, 512) == [[1, 252, 1], [253, 253, 3], [254, 512, 0]], "no graph is larger"
    assert boot_schedule((1, 3), 512, 512) == [[1, 252, 1], [253, 253, 3], [254, 512, 1]]
    assert boot_schedule((0, 1, 3), 8, 2) == [[1, 1, 1], [2, 2, 3], [3, 8, 0]]
    assert boot_schedule((4,), 16) == [[1, 16, 4]]
    assert boot_schedule((0,), 16) == [[1, 16, 0]]
    assert boot_schedule((0, 2), 2) == [[1, 1, 2], [2, 2, 0]]


@given(
    st.sampled_from(list(Method)), st.integers(1, 32), st.none() | st.integers(1, 32), st.integers(1, 300),
    st.sampled_from(list(OffPolicy)),
)  # fmt: skip
def test_boot_schedule_holds_every_k_of_the_knob_space(
    method: Method, top: int, start: int | None, seqs: int, policy: OffPolicy
) -> None:
    subject = spec(
        method,
        verifier={"max_num_seqs": seqs},
        max_speculative_tokens=top,
        num_speculative_tokens=start,
        off_policy=policy,
    )
    planned = plan(subject)
    assert list(planned.ks) == sorted(set(planned.ks))
    assert max(planned.ks) <= top
    if planned.actuator is Actuator.LIVE:
        table = KTable.from_rows(boot_schedule(planned.ks, seqs))
        assert table.ks == set(planned.ks)
        assert table.max_batch == seqs
        assert not start or start > top or len(planned.ks) >= seqs or start in planned.ks


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("0.32.0", (0, 32, 0)),
        ("v0.32", (0, 32, 0)),
        ("0.11.0+rhai5", (0, 11, 0)),
        ("0.32.0+cpu", (0, 32, 0)),
        ("0.33.0rc1", (0, 33, 0)),
        ("0.32.1.dev12+g0abc", (0, 32, 1)),
        ("0.32.0-cu129", (0, 32, 0)),
        ("0.32.0.post1", (0, 32, 0)),
        ("nightly", None),
        ("", None),
        ("0", None),
        ("0.32.0.4", None),
    ],
)
def test_versions(text: str, parsed: Version | None) -> None:
    assert parse_version(text) == parsed
