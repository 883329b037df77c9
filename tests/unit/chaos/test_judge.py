"""The judge of the fault run finds each kind of harm, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.judge import Check, Meanwhile, Pod, Requests, Served, Sight, Table, Write, find_harm, unsettled

TABLE = Table(3, ((1, 16, 4), (17, 64, 0)))
POD = Pod("auto", "auto-1", "uid-1", 0, True)
SERVED = Served(
    ks=frozenset(range(6)),
    conditions={"Ready": ("True", "AllReady"), "TuningConverged": ("True", "Tuned")},
    current=True,
    in_status=TABLE,
    mounted=TABLE,
    version_in_pods=3,
    children=frozenset({"Service/auto"}),
)
BEFORE = Sight({"auto": SERVED}, (POD,), {"/store/models/llama": "a1", "ConfigMap models/notes": "uid/7"})
QUIET = Meanwhile(
    requests={"auto": Requests(answered=9)},
    tables={"auto": frozenset({TABLE})},
    steps={"auto": {4: 100.0, 0: 3.0}},
    writes=(
        Write("patch", "models", "configmaps", "auto-table"),
        Write("update", "speculative-system", "leases", "speculative-operator"),
        Write("create", "models", "events", "auto.17"),
        Write("patch", "models", "services", "auto"),
    ),
)


def checks(after: Sight, meanwhile: Meanwhile) -> list[Check]:
    return [harm.check for harm in find_harm(BEFORE, after, meanwhile)]


def test_where_nothing_happens_there_is_no_harm() -> None:
    assert find_harm(BEFORE, BEFORE, QUIET) == []
    assert unsettled(BEFORE, BEFORE) == []


@pytest.mark.parametrize("got", [Requests(9, 1, "503"), Requests(0, 0), Requests(0, 3, "refused")])
def test_a_request_that_fails_or_none_that_is_answered(got: Requests) -> None:
    assert set(checks(BEFORE, replace(QUIET, requests={"auto": got}))) == {Check.REQUESTS}
    assert checks(BEFORE, replace(QUIET, requests={})) == [Check.REQUESTS]


def test_a_table_beyond_what_engines_prepared_even_if_it_was_there_for_a_moment() -> None:
    stored = frozenset({TABLE, Table(4, ((1, 64, 6),))})
    assert checks(BEFORE, replace(QUIET, tables={"auto": stored})) == [Check.K]


def test_steps_with_a_k_that_is_not_allowed_count_only_where_they_ran() -> None:
    assert checks(BEFORE, replace(QUIET, steps={"auto": {6: 1.0}})) == [Check.K]
    assert checks(BEFORE, replace(QUIET, steps={"auto": {6: 0.0}})) == []


@pytest.mark.parametrize("pods", [(), (replace(POD, uid="uid-2"),), (replace(POD, restarts=1),)])
def test_a_pod_that_is_gone_replaced_or_restarted(pods: tuple[Pod, ...]) -> None:
    assert checks(replace(BEFORE, pods=pods), QUIET) == [Check.PODS]


def test_what_belongs_to_others_may_neither_go_nor_change() -> None:
    changed = replace(BEFORE, foreign={**BEFORE.foreign, "/store/models/llama": "b2"})
    assert checks(changed, QUIET) == [Check.FOREIGN]
    assert checks(replace(BEFORE, foreign={}), QUIET) == [Check.FOREIGN] * 2


@pytest.mark.parametrize(
    "write",
    [
        Write("delete", "models", "configmaps", "notes"),
        Write("patch", "kube-system", "deployments", "auto-1"),
        Write("patch", "models", "deployments", "automatic"),
    ],
)
def test_a_write_to_what_is_not_a_child(write: Write) -> None:
    (harm,) = find_harm(BEFORE, BEFORE, replace(QUIET, writes=(*QUIET.writes, write)))
    assert harm.check is Check.FOREIGN
    assert str(write) in harm.text


@pytest.mark.parametrize(
    "now",
    [
        replace(SERVED, current=False),
        replace(SERVED, conditions={"Ready": ("False", "PodsNotReady")}),
        replace(SERVED, conditions={}),
        replace(SERVED, mounted=Table(4, TABLE.rows)),
        replace(SERVED, version_in_pods=2),
        replace(SERVED, children=frozenset()),
    ],
)
def test_a_state_that_has_not_come_back(now: Served) -> None:
    (harm,) = unsettled(BEFORE, replace(BEFORE, served={"auto": now}))
    assert harm.check is Check.STATE


def test_pods_too_many_and_pods_not_ready_are_no_rest() -> None:
    assert unsettled(BEFORE, replace(BEFORE, pods=(POD, replace(POD, uid="uid-2"))))
    assert unsettled(BEFORE, replace(BEFORE, pods=(replace(POD, ready=False),)))
    assert unsettled(BEFORE, replace(BEFORE, served={}))


def test_what_was_learned_is_no_state_that_must_come_back() -> None:
    now = replace(SERVED, conditions={**SERVED.conditions, "TuningConverged": ("False", "CollectingEvidence")})
    assert unsettled(BEFORE, replace(BEFORE, served={"auto": now})) == []
    assert unsettled(BEFORE, replace(BEFORE, served={"auto": replace(SERVED, version_in_pods=None)})) == []


def test_a_table_that_is_part_of_the_template_is_in_no_config_map() -> None:
    fixed = replace(BEFORE, served={"auto": replace(SERVED, mounted=None)})
    assert unsettled(fixed, fixed) == []
    assert unsettled(fixed, BEFORE)
    assert unsettled(BEFORE, fixed)
