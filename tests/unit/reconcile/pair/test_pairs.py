"""Pairs on their way to pods, without a cache: what happens when ..."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import (
    COMMITS,
    DRAFT,
    EAGLE,
    FOREIGN,
    LOOKING,
    PAIRED,
    VERIFIER,
    Paired,
    advance,
    drawn,
    hub,
    serving,
    state,
    told,
)
from tests.unit.reconcile.scripted import active_table
from tests.unit.reconcile.worlds import Cluster, observed, template

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, Condition, Truth
from speculative_operator.domain.jobs import JobSeen, Phase, Purpose
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import (
    Check,
    Method,
    Mode,
    OffPolicy,
    Speculation,
    Speculator,
    Weights,
)
from speculative_operator.reconcile.snapshot import notes
from speculative_operator.reconcile.tick import tick
from speculative_operator.render import Capabilities
from speculative_operator.settings import Settings

# -- fresh


def test_pods_are_made_once_the_pair_was_read() -> None:
    cluster = Paired()
    first = cluster.tick()
    assert cluster.made == [Purpose.INSPECT]
    assert not cluster.serves()
    assert state(cluster, "Ready") == ("False", "Inspecting")
    assert state(cluster, "Progressing") == ("True", "Inspecting")
    assert state(cluster, "PairCompatible") == ("Unknown", "Inspecting")
    assert told(first) == [("Normal", "Inspecting")]
    assert cluster.look().actions == ()
    assert cluster.args(Purpose.INSPECT) == [
        "inspect", "--verifier", f"hf://{VERIFIER}", "--speculator", f"hf://{EAGLE}",
    ]  # fmt: skip
    cluster.read()
    outcome = cluster.tick()
    assert cluster.serves()
    assert ("Normal", "PairMatches") in told(outcome)
    assert ("Normal", "Created") in told(outcome)
    assert state(cluster, "PairCompatible") == ("True", "PairMatches")
    Status.model_validate(cluster.status)


def test_the_engine_is_told_the_commits() -> None:
    cluster = serving()
    args = cluster.engine_args
    assert args[args.index("--revision") + 1] == COMMITS[VERIFIER]
    assert f'"revision":"{COMMITS[EAGLE]}"' in args[args.index("--speculative-config") + 1].replace(" ", "")
    pair = cluster.status["pair"]
    assert (pair["verifierPin"]["uri"], pair["verifierPin"]["resolved"]) == (f"hf://{VERIFIER}", COMMITS[VERIFIER])
    assert pair["speculatorPin"]["resolved"] == COMMITS[EAGLE]
    assert pair["verdict"] == "Compatible"
    assert pair["hash"] == template(cluster.children["Deployment", "demo"])["metadata"]["labels"][names.LABEL_PAIR]
    assert "nextPair" not in cluster.status
    Status.model_validate(cluster.status)


def test_the_job_is_removed_once_status_holds_what_it_read() -> None:
    cluster = Paired()
    cluster.tick()
    cluster.read()
    cluster.tick()
    assert ("Job", "demo-inspect") in cluster.children
    outcome = cluster.tick()
    assert ("Job", "demo-inspect") not in cluster.children
    assert outcome.events == (), "its end is no news"
    assert cluster.made == [Purpose.INSPECT]


def test_a_restart_of_the_operator_needs_no_job() -> None:
    cluster = serving()
    before, deployment = cluster.status, cluster.deployment
    cluster.forget()
    outcome = cluster.tick()
    assert (outcome.actions, outcome.events) == ((), ())
    assert cluster.status["pair"] == before["pair"]
    assert cluster.status["conditions"] == before["conditions"]
    assert cluster.deployment == deployment


def test_garbled_facts_are_read_anew_and_pods_stay() -> None:
    cluster = serving()
    deployment = cluster.deployment
    cluster.notes = notes.manifest(cluster.spec, {"facts": ["z:bm90aGluZw=="]})
    cluster.forget()
    cluster.tick()
    assert cluster.made == [Purpose.INSPECT] * 2
    assert cluster.deployment == deployment
    advance(cluster)
    assert cluster.deployment == deployment
    assert state(cluster, "Ready") == ("True", "AllReady")


@pytest.mark.parametrize("speculator", [Speculator(Method.NGRAM), None])
def test_a_verifier_alone_is_pinned_too(speculator: Speculator | None) -> None:
    cluster = serving(spec=replace(PAIRED, speculator=speculator))
    assert "--revision" in cluster.engine_args
    assert cluster.condition("PairCompatible")["reason"] == ("PairMatches" if speculator else "NoSpeculator")


def test_jobs_read_sources_as_the_operator_is_set() -> None:
    """No spec may set such variables; without them a Job is as it was."""
    given = Settings(plain_http_registries="registry.local:5000", source_timeout=5.0).for_jobs
    envs = []
    for job_env in ((), given):
        cluster = Paired(capabilities=replace(LOOKING, job_env=job_env))
        cluster.tick()
        (container,) = cluster.children["Job", "demo-inspect"]["spec"]["template"]["spec"]["containers"]
        envs.append(container["env"])
    names_first = ("SPECULATIVE_PLAIN_HTTP_REGISTRIES", "SPECULATIVE_SOURCE_TIMEOUT")
    told = [
        {"name": name, "value": value} for name, value in zip(names_first, ("registry.local:5000", "5.0"), strict=True)
    ]
    assert envs[1] == [*told, *envs[0]]


def queued() -> JobSeen:
    """What the shell says of a Job that it does not let be made yet."""
    return JobSeen("demo-inspect", Purpose.INSPECT, "", Phase.RUNNING, trouble="waits for its turn")


def test_a_job_whose_turn_has_not_come_is_asked_for_again_and_spoken_of() -> None:
    cluster = Paired()
    for _ in range(3):
        outcome = tick(cluster.world(jobs=(queued(),)), None, None, cluster.now)
        assert [action.manifest["kind"] for action in outcome.actions if isinstance(action, ApplyChild)] == ["Job"]
        messages = [one["message"] for one in outcome.status["conditions"] if one["reason"] == "Inspecting"]
        assert any("Job demo-inspect: waits for its turn" in one for one in messages)


def test_pods_do_not_wait_for_ever_for_the_turn_of_their_job() -> None:
    cluster = Paired()
    message = "it has waited 10 minutes for the"
    problem = Condition(ConditionType.READY, Truth.FALSE, Reason.PAIR_UNREAD, message, ("Job", "demo-inspect"))
    outcome = tick(cluster.world(jobs=(queued(),), problems=(problem,)), None, None, cluster.now)
    kinds = {action.manifest["kind"] for action in outcome.actions if isinstance(action, ApplyChild)}
    assert "Deployment" in kinds
    assert "Job" not in kinds
    (pair,) = [one for one in outcome.status["conditions"] if one["type"] == "PairCompatible"]
    assert (pair["status"], pair["reason"]) == ("Unknown", "PairUnread")
    assert message in pair["message"]


# -- off


@pytest.mark.parametrize(
    ("capabilities", "weights"),
    [
        (Capabilities(), Weights()),
        (replace(LOOKING, check_pairs=False), Weights()),
        (replace(LOOKING, job_image=""), Weights()),
        (LOOKING, Weights(check=Check.DISABLED)),
    ],
)
def test_without_a_look_all_is_as_it_was(capabilities: Capabilities, weights: Weights) -> None:
    cluster = Paired(spec=replace(PAIRED, weights=weights), capabilities=capabilities)
    cluster.tick()
    plain = Cluster(spec=PAIRED)
    plain.tick()
    assert cluster.status == plain.status
    assert cluster.children == plain.children


# -- a change while pods serve


def test_pods_wait_for_a_look_at_the_next_pair() -> None:
    cluster = serving()
    deployment = cluster.deployment
    cluster.edit(speculator=Speculator(Method.DRAFT_MODEL, hub(DRAFT)))
    for _ in range(3):
        cluster.tick()
        assert cluster.deployment == deployment
    assert state(cluster, "Ready") == ("False", "Inspecting")
    cluster.read()
    cluster.tick()
    cluster.tick()
    assert cluster.templates == 2
    cluster.roll()
    cluster.settle()
    assert cluster.status["pair"]["speculatorPin"]["resolved"] == COMMITS[DRAFT]
    assert cluster.templates == 2, "both sides at once"


def test_another_method_with_the_same_models_is_judged_without_a_job() -> None:
    cluster = serving()
    deployment = cluster.deployment
    cluster.edit(speculator=Speculator(Method.DFLASH, hub(EAGLE)))
    cluster.tick()
    assert cluster.made == [Purpose.INSPECT]
    assert state(cluster, "PairCompatible")[1] == "PairMismatch"
    assert cluster.deployment == deployment
    cluster.edit(speculator=drawn(EAGLE))
    cluster.tick()
    assert state(cluster, "Ready") == ("True", "AllReady")


def test_mode_off_and_back_needs_no_job() -> None:
    cluster = serving()
    cluster.edit(speculation=Speculation(mode=Mode.DISABLED))
    advance(cluster)
    assert "--speculative-config" not in cluster.engine_args
    assert COMMITS[VERIFIER] in cluster.engine_args
    assert state(cluster, "PairCompatible") == ("Unknown", "NoSpeculator")
    cluster.edit(speculation=Speculation())
    advance(cluster)
    assert "--speculative-config" in cluster.engine_args
    assert cluster.made == [Purpose.INSPECT]


# -- branches


def test_a_new_mark_follows_it() -> None:
    cluster = serving()
    cluster.commits[EAGLE] = "e" * 40
    cluster.edit(weights=Weights(repin="2026-11-21"))
    advance(cluster)
    assert cluster.templates == 2
    assert "e" * 40 in " ".join(cluster.engine_args)
    cluster.edit(weights=Weights(repin="2026-11-22"))
    advance(cluster)
    assert cluster.templates == 2, "nothing has moved since"
    assert cluster.made == [Purpose.INSPECT] * 3


# -- removal, pause


def test_pods_without_drafter_keep_their_pinned_verifier(tuner: Any) -> None:
    cluster = serving(spec=replace(PAIRED, speculation=Speculation(off_policy=OffPolicy.REMOVE)))
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.settle()
    assert cluster.status["speculation"]["speculatorRemoved"] is True
    assert "--speculative-config" not in cluster.engine_args
    assert COMMITS[VERIFIER] in cluster.engine_args
    status = cluster.status
    cluster.forget()
    outcome = cluster.tick()
    assert outcome.actions == ()
    assert cluster.status["pair"] == status["pair"]
    tuner.bring_back(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.tick()
    assert f'"revision":"{COMMITS[EAGLE]}"' in " ".join(cluster.engine_args).replace(" ", "")


def test_pods_without_their_speculator_stay_as_they_are_when_the_next_pair_does_not_fit(tuner: Any) -> None:
    cluster = serving(spec=replace(PAIRED, speculation=Speculation(off_policy=OffPolicy.REMOVE)))
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.settle()
    deployment = cluster.deployment
    cluster.edit(speculator=drawn(FOREIGN))
    advance(cluster)
    assert cluster.deployment == deployment
    assert cluster.status["speculation"]["speculatorRemoved"] is True
    cluster.edit(speculator=drawn(EAGLE))
    advance(cluster)
    assert cluster.deployment["spec"] == deployment["spec"]


def test_nothing_is_looked_at_while_paused() -> None:
    cluster = serving()
    before = cluster.status
    cluster.edit(paused=True, speculator=drawn(FOREIGN))
    for _ in range(3):
        assert cluster.tick().actions == ()
    assert cluster.status["pair"] == before["pair"]
    assert state(cluster, "PairCompatible") == ("True", "PairMatches"), "of the pods that run"
