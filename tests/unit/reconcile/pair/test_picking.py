"""`speculator: {auto: true}`: what is picked, what pods are made of, and what never moves a pick."""

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.choosing import (
    GOOD,
    LEFT,
    SMALL,
    WRONG,
    Choosing,
    condition,
    row,
    rows,
    verifier,
)
from tests.unit.reconcile.paired import CACHED, DRAFT, EAGLE, FOREIGN, VERIFIER, advance, told, with_cache
from tests.unit.reconcile.worlds import observed

from speculative_operator.api.status import Status
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.memo import Memo
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    Cache,
    Check,
    EngineSettings,
    EngineType,
    Mode,
    Speculation,
    Weights,
)
from speculative_operator.reconcile.pair.pairing import UNREAD_SECONDS
from speculative_operator.render import Capabilities
from speculative_operator.tuner.decide import PATIENCE

TWO = AcceleratorRequest(per_replica=2)
UNREAD = replace(LEFT, weights=Weights(check=Check.DISABLED))


FIGURE = r", \+\d+ % expected over 1 to 64 requests"


def serving(**change: Any) -> Choosing:
    cluster = Choosing(**change)
    advance(cluster)
    cluster.settle()
    assert cluster.look().actions == ()
    return cluster


# -- by value


def test_the_first_row_that_is_served_is_picked_read_and_served() -> None:
    cluster = Choosing()
    first = cluster.tick()
    assert ("Normal", "SpeculatorPicked") in told(first)
    assert cluster.made == [Purpose.INSPECT]
    assert cluster.args(Purpose.INSPECT)[-1] == f"hf://{EAGLE}"
    assert not cluster.serves()
    advance(cluster)
    assert EAGLE in " ".join(cluster.engine_args)
    assert condition(cluster, "PairCompatible") == ("True", "PairMatches")
    assert len(re.findall(FIGURE, cluster.picked["reason"])) == 2
    assert cluster.picked | {"reason": re.sub(FIGURE, "", cluster.picked["reason"])} == {
        "verifier": f"hf://{VERIFIER}",
        "speculator": f"hf://{EAGLE}",
        "method": "eagle3",
        "k": 3,
        "source": f"https://example.org/{EAGLE}",
        "reason": f"picked {EAGLE} (eagle3): made for {VERIFIER}; K = 3 by its source; your own row; K follows the "
        "load, no acceptance published at a known K; first of 2 that the engine serves; next "
        f"{DRAFT} (draft_model): K follows the load, no acceptance published at a known K; "
        f"source: https://example.org/{EAGLE}",
        "basis": "Card",
        "time": first.status["picked"]["time"],
        "generation": 1,
    }
    Status.model_validate(cluster.status)


@pytest.mark.parametrize(
    ("speculation", "start"),
    [
        (Speculation(), 3),
        (Speculation(num_speculative_tokens=5), 5),
        (Speculation(max_speculative_tokens=2), 2),
        (Speculation(mode=Mode.RECOMMEND), 3),
        (Speculation(mode=Mode.STATIC, num_speculative_tokens=4), 4),
    ],
)
def test_tuning_starts_at_the_rows_k_unless_the_spec_says(speculation: Speculation, start: int) -> None:
    cluster = serving(spec=replace(UNREAD, speculation=speculation))
    assert cluster.memory is not None
    tried = [k for row in cluster.memory.trials for k in row.ks]
    assert max([*tried, *(band[2] for band in cluster.status["speculation"]["table"])]) == start


@pytest.mark.parametrize("capabilities", [Capabilities(), Capabilities(check_pairs=False, job_image="x:1")])
def test_without_a_look_at_pairs_the_name_decides(capabilities: Capabilities) -> None:
    cluster = Choosing(capabilities=capabilities)
    outcome = cluster.tick()
    assert ("Normal", "SpeculatorPicked") in told(outcome)
    assert cluster.serves()
    assert cluster.picked["basis"] == "Name"
    assert condition(cluster, "PairCompatible") == ("Unknown", "NotChecked")


def test_what_the_engine_does_not_serve_is_not_picked() -> None:
    tensorrt = EngineSettings(type=EngineType.TENSORRT_LLM, version="1.3.0rc29")
    cluster = Choosing(spec=replace(UNREAD, engine=tensorrt), catalogue=rows(row("me/eagle", method="eagle")))
    cluster.tick()
    assert cluster.told_of() == (None, None)
    assert "eagle for Qwen/Qwen3-8B, which this engine does not serve" in cluster.picked["reason"]
    assert cluster.serves()
    one_pass = rows(row("me/p-eagle", one_pass=True), GOOD)
    cluster = Choosing(spec=replace(UNREAD, engine=EngineSettings(version="0.15.0")), catalogue=one_pass)
    cluster.tick()
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3"), "that release does not draft in one pass"
    cluster = Choosing(spec=UNREAD, catalogue=one_pass)
    cluster.tick()
    assert (cluster.told_of()[0], cluster.picked["parallelDrafting"]) == ("hf://me/p-eagle", True)
    assert '"parallel_drafting":true' in " ".join(cluster.engine_args).replace(" ", "")
    beside_pipelines = replace(UNREAD, verifier=replace(LEFT.verifier, pipeline_parallel_size=2), accelerator=TWO)
    cluster = Choosing(spec=beside_pipelines)
    cluster.tick()
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")


def test_a_schedule_gets_no_method_whose_k_is_fixed() -> None:
    from speculative_operator.domain.table import KTable

    scheduled = Speculation(mode=Mode.STATIC, schedule=KTable.from_rows([(1, 16, 4), (17, 256, 0)]))
    fixed = row("me/medusa", "medusa")
    cluster = Choosing(spec=replace(UNREAD, speculation=scheduled), catalogue=rows(fixed, GOOD))
    cluster.tick()
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")


# -- nothing known


def test_an_unknown_verifier_is_read_first_then_served_alone_with_a_remedy() -> None:
    cluster = Choosing(catalogue=rows(row(EAGLE, verifier="org/other")))
    first = cluster.tick()
    assert cluster.picked == {}
    assert cluster.args(Purpose.INSPECT) == ["inspect", "--verifier", f"hf://{VERIFIER}"]
    assert "SpeculatorPicked" not in [reason for _, reason in told(first)]
    cluster.read()
    second = cluster.tick()
    assert cluster.serves()
    assert "--speculative-config" not in cluster.engine_args
    assert ("Warning", "NoSpeculatorKnown") in told(second)
    for kind in ("PairCompatible", "SpeculationActive"):
        found = cluster.condition(kind)
        assert found["reason"] == "NoSpeculatorKnown"
        assert "set speculator.method and speculator.model, or add your own row" in found["message"]
    cluster.roll()
    cluster.settle()
    assert condition(cluster, "Ready") == ("True", "AllReady")
    assert cluster.picked["basis"] == "Card"
    Status.model_validate(cluster.status)


def test_the_model_card_finds_what_the_name_does_not() -> None:
    cluster = Choosing(spec=replace(LEFT, verifier=verifier("me/tuned")), cards={"me/tuned": (VERIFIER,)})
    outcomes = advance(cluster)
    assert cluster.made == [Purpose.INSPECT] * 2, "the verifier, then both"
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert cluster.picked["basis"] == "Card"
    assert "which me/tuned is derived from" in cluster.picked["reason"]
    assert cluster.templates == 1, "no pod is made of the verifier alone on the way"
    assert "NoSpeculatorKnown" not in [reason for one in outcomes for _, reason in told(one)]


def test_the_model_card_corrects_a_guess_by_name_before_any_pod() -> None:
    name = "me/other-FP8"
    known = rows(row(DRAFT, "draft_model", verifier="org/other"), GOOD)
    cluster = Choosing(spec=replace(LEFT, verifier=verifier(name)), cards={name: (VERIFIER,)}, catalogue=known)
    cluster.tick()
    assert cluster.told_of() == (f"hf://{DRAFT}", "draft_model")
    advance(cluster)
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert cluster.templates == 1


# -- what moves a pick, and what does not


@pytest.mark.parametrize("spec", [LEFT, UNREAD, with_cache(LEFT)], ids=["read", "unread", "cached"])
def test_rows_move_no_pick_but_are_told_once(spec: Any) -> None:
    cluster = serving(spec=spec, catalogue=rows(GOOD))
    deployment, pick = cluster.deployment, cluster.picked
    cluster.catalogue = rows(row(DRAFT, "draft_model"), GOOD)
    outcome = cluster.tick()
    assert told(outcome) == [("Normal", "BetterSpeculatorKnown")]
    assert outcome.actions == ()
    (warning,) = cluster.status["warnings"]
    assert warning["message"].startswith(f"the catalogue now prefers {DRAFT} (draft_model): made for")
    assert "serving.speculative.dev/repin" in warning["message"]
    cluster.forget()
    cluster.edit(replicas=3)
    for _ in range(4):
        cluster.tick()
        cluster.roll()
    assert cluster.templates == 1
    assert cluster.picked == pick | {"generation": 2}
    assert cluster.deployment["spec"]["template"] == deployment["spec"]["template"]
    cluster.catalogue = rows(GOOD)
    cluster.tick()
    assert "warnings" not in cluster.status


def test_what_is_better_is_told_once_while_pods_stay_as_they_are() -> None:
    cluster = serving(catalogue=rows(GOOD))
    cluster.catalogue = rows(SMALL, GOOD)
    cluster.tick()
    cluster.edit(engine=EngineSettings(version="0.1.0"))
    for _ in range(3):
        cluster.tick()
    assert condition(cluster, "Ready") == ("False", "UnsupportedByEngine")
    assert [one["reason"] for one in cluster.status.get("warnings", ())].count("BetterSpeculatorKnown") <= 1
    cluster.edit(engine=EngineSettings(), paused=True)
    cluster.tick()
    assert "warnings" not in cluster.status


def test_a_row_for_a_verifier_that_is_served_alone_waits_to_be_asked_for() -> None:
    cluster = serving(catalogue=rows(row(EAGLE, verifier="org/other")))
    assert cluster.told_of() == (None, None)
    cluster.catalogue = rows(GOOD)
    outcome = cluster.tick()
    assert (told(outcome), outcome.actions) == ([("Normal", "BetterSpeculatorKnown")], ())
    cluster.edit(weights=replace(cluster.spec.weights, repin="now"))
    advance(cluster)
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert EAGLE in " ".join(cluster.engine_args)


def test_repin_picks_anew_once_and_taking_it_away_does_not() -> None:
    cluster = serving(catalogue=rows(GOOD))
    cluster.catalogue = rows(SMALL, GOOD)
    cluster.edit(weights=replace(cluster.spec.weights, repin="now"))
    advance(cluster)
    assert cluster.told_of() == (f"hf://{DRAFT}", "draft_model")
    assert cluster.templates == 2
    cluster.catalogue = rows(GOOD, SMALL)
    cluster.edit(weights=replace(cluster.spec.weights, repin=""))
    advance(cluster)
    assert cluster.told_of() == (f"hf://{DRAFT}", "draft_model")


def test_another_verifier_is_picked_for_anew_and_another_revision_is_not() -> None:
    cluster = serving()
    cluster.catalogue = rows(SMALL, GOOD, row(EAGLE, verifier="me/new"))
    source = replace(cluster.spec.verifier.source, revision="v2")
    cluster.edit(verifier=replace(cluster.spec.verifier, source=source))
    advance(cluster)
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    cluster.edit(verifier=verifier("me/new"))
    cluster.tick()
    assert cluster.picked["verifier"] == "hf://me/new"
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")


def test_a_paused_object_is_not_picked_for() -> None:
    cluster = Choosing(spec=replace(LEFT, paused=True))
    assert cluster.tick().actions == ()
    assert cluster.picked == {}
    cluster = serving()
    pick = cluster.picked
    cluster.catalogue = rows(SMALL)
    cluster.edit(paused=True, weights=replace(cluster.spec.weights, repin="now"), verifier=verifier("me/new"))
    cluster.tick()
    assert cluster.picked == pick


def test_drafts_that_are_off_need_no_pick_and_keep_one() -> None:
    cluster = Choosing(spec=replace(LEFT, speculation=Speculation(mode=Mode.DISABLED)))
    advance(cluster)
    assert cluster.picked == {}
    assert cluster.serves()
    cluster = serving()
    cluster.catalogue = rows(SMALL, GOOD)
    cluster.edit(speculation=Speculation(mode=Mode.DISABLED))
    advance(cluster)
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert "--speculative-config" not in cluster.engine_args
    cluster.edit(speculation=Speculation())
    advance(cluster)
    assert EAGLE in " ".join(cluster.engine_args)


def test_a_speculator_of_the_users_own_ends_the_pick() -> None:
    cluster = serving()
    cluster.edit(auto_speculator=False, speculator=None)
    advance(cluster)
    assert "picked" not in cluster.status
    assert condition(cluster, "PairCompatible") == ("Unknown", "NoSpeculator")


@pytest.mark.parametrize("weights", [Weights(), CACHED, Weights(cache=Cache(node_path="/var/lib/models"))])
def test_pods_tell_it_at_the_versions_that_they_are_pinned_to(weights: Weights) -> None:
    cluster = serving(spec=replace(LEFT, weights=weights))
    cluster.catalogue = rows(SMALL, GOOD)
    cluster.status = {}
    cluster.forget()
    advance(cluster)
    cluster.settle()
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert cluster.templates == 1
    assert condition(cluster, "Ready") == ("True", "AllReady")


def test_an_engine_that_does_not_serve_the_pick_gets_another() -> None:
    trt = EngineSettings(type=EngineType.TENSORRT_LLM, version="1.2.0")
    cluster = serving(spec=UNREAD, catalogue=rows(row("me/block", "dflash"), GOOD))
    assert cluster.told_of()[1] == "dflash"
    cluster.edit(engine=trt)
    outcome = cluster.tick()
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert ("Normal", "SpeculatorPicked") in told(outcome)
    assert "instead of me/block (dflash): " in cluster.picked["reason"]


# -- what does not do


def test_a_pick_that_does_not_fit_is_passed_over_for_the_next() -> None:
    cluster = Choosing(catalogue=rows(WRONG, GOOD))
    outcomes = advance(cluster)
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    (over,) = cluster.picked["passedOver"]
    assert (over["speculator"], over["method"]) == (f"hf://{FOREIGN}", "eagle3")
    assert "passed over" in cluster.picked["reason"]
    assert over["why"]
    assert cluster.templates == 1
    assert [reason for one in outcomes for _, reason in told(one)].count("SpeculatorPicked") == 2
    assert condition(cluster, "PairCompatible") == ("True", "PairMatches")
    cluster.settle()
    assert "warnings" not in cluster.status, "what was passed over is not told as better"


def test_where_nothing_fits_the_verifier_is_served_alone() -> None:
    cluster = Choosing(catalogue=rows(WRONG))
    advance(cluster)
    cluster.settle()
    assert cluster.told_of() == (None, None)
    assert "--speculative-config" not in cluster.engine_args
    found = cluster.condition("PairCompatible")
    assert (found["status"], found["reason"]) == ("Unknown", "NoSpeculatorKnown")
    assert FOREIGN in found["message"]
    assert "set speculator.method" in found["message"]
    assert condition(cluster, "Ready") == ("True", "AllReady")


@pytest.mark.parametrize("reason", ["SourceNotFound", "SourceUnauthorized"])
@pytest.mark.parametrize("spec", [LEFT, with_cache(LEFT)], ids=["plain", "cached"])
def test_a_pick_that_its_source_refuses_is_passed_over(spec: Any, reason: str) -> None:
    cluster = Choosing(spec=spec)
    cluster.tick()
    cluster.fails(Purpose.INSPECT, reason, "no such model", side="speculator")
    cluster.tick()
    assert cluster.told_of() == (f"hf://{DRAFT}", "draft_model")
    advance(cluster)
    assert DRAFT.rsplit("/", 1)[-1] in " ".join(cluster.engine_args) or spec.weights.cache is not None
    assert cluster.serves()


def test_a_verifier_that_its_source_refuses_is_no_fault_of_the_pick() -> None:
    cluster = Choosing()
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnauthorized", "token please", side="verifier")
    cluster.tick()
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert not cluster.serves()
    assert condition(cluster, "Ready") == ("False", "SourceUnauthorized")


def test_a_verifier_that_does_not_fit_the_spec_is_no_fault_of_the_pick() -> None:
    cluster = Choosing(spec=replace(LEFT, verifier=replace(LEFT.verifier, max_model_len=10_000_000)))
    advance(cluster)
    assert condition(cluster, "PairCompatible") == ("False", "PairMismatch")
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert "passedOver" not in cluster.picked


def test_a_pick_that_cannot_be_read_now_waits_while_the_verifier_serves() -> None:
    cluster = Choosing()
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnreachable", "no answer")
    cluster.tick()
    assert "--speculative-config" not in cluster.engine_args
    found = cluster.condition("PairCompatible")
    assert found["reason"] == "PairUnread"
    assert f"until a Job has inspected the pick {EAGLE} (eagle3)" in found["message"]
    assert condition(cluster, "SpeculationActive") == ("False", "PairUnread")
    cluster.roll()
    for _ in range(3):
        cluster.tick()
    assert (cluster.templates, cluster.told_of()) == (1, (f"hf://{EAGLE}", "eagle3"))
    cluster.now += UNREAD_SECONDS
    advance(cluster)
    assert EAGLE in " ".join(cluster.engine_args)
    assert cluster.templates == 2
    assert condition(cluster, "PairCompatible") == ("True", "PairMatches")


def test_a_source_that_is_down_takes_no_drafter_away() -> None:
    cluster = serving(catalogue=rows(GOOD))
    deployment, record = cluster.deployment, cluster.status["pair"]
    cluster.catalogue = rows(SMALL, GOOD)
    cluster.edit(weights=replace(cluster.spec.weights, repin="now"))
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnreachable", "no answer")
    for _ in range(4):
        cluster.tick()
    assert cluster.deployment == deployment
    assert cluster.status["pair"] == record
    assert cluster.status["nextPair"]["speculator"] == f"hf://{DRAFT}"
    cluster.now += UNREAD_SECONDS
    advance(cluster)
    assert cluster.told_of() == (f"hf://{DRAFT}", "draft_model")
    assert condition(cluster, "Ready") == ("True", "AllReady")


def test_a_pick_that_pods_run_by_is_not_dropped_for_what_a_later_release_finds(monkeypatch: Any) -> None:
    from speculative_operator.pairing import judge as judging
    from speculative_operator.reconcile.pair import verdicts

    cluster = serving(catalogue=rows(GOOD, SMALL))
    deployment = cluster.deployment

    def stricter(verifier: Any, speculator: Any, spec: Any, rules: Any) -> Any:
        found = judging.judge(verifier, speculator, spec, rules)
        if speculator is None or EAGLE not in speculator.pin.location:
            return found
        refused = judging.judge(verifier, cluster.facts(FOREIGN), spec, rules)
        assert not refused.compatible
        return refused

    monkeypatch.setattr(verdicts, "judge", stricter)
    cluster.memo = Memo()
    for _ in range(3):
        cluster.tick()
    assert cluster.deployment == deployment
    assert cluster.told_of() == (f"hf://{EAGLE}", "eagle3")
    assert condition(cluster, "PairCompatible") == ("False", "PairMismatch")


def test_the_tuner_goes_on_with_a_pick() -> None:
    cluster = serving()
    for _ in range(PATIENCE + 2):  # nothing is told of drafts that were tried, so the prior decides in the end
        cluster.tick(observed(cluster, batch=4))
    assert condition(cluster, "SpeculationActive")[0] == "True"
    assert cluster.templates == 1
