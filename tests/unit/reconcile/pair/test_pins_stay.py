"""Pods that run pinned versions while their sources do not answer: whatever happens then, they keep them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.paired import (
    CACHED,
    COMMITS,
    DRAFT,
    EAGLE,
    LOOKING,
    PAIRED,
    VERIFIER,
    Paired,
    advance,
    drawn,
    hub,
    serving,
    told,
)
from tests.unit.reconcile.scripted import active_table
from tests.unit.reconcile.worlds import observed

from speculative_operator.api.status import Status
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import (
    Cache,
    Check,
    EmptyDir,
    Method,
    ModelSource,
    OffPolicy,
    Scheme,
    Speculation,
    Speculator,
    Weights,
)
from speculative_operator.reconcile.pair.pairing import BLOCKED_SECONDS
from speculative_operator.reconcile.snapshot import notes

NODE, EMPTY = Weights(cache=Cache(node_path="/var/lib/models")), Weights(cache=Cache(empty_dir=EmptyDir("100Gi")))
PLACES = pytest.mark.parametrize("weights", [Weights(), CACHED, NODE, EMPTY], ids=["plain", "claim", "node", "empty"])
NEW = "e" * 40


def repin(cluster: Paired, value: str) -> None:
    """An annotation: the generation of the spec stays."""
    cluster.spec = replace(cluster.spec, weights=replace(cluster.spec.weights, repin=value))


def down(cluster: Paired, reason: str = "SourceUnreachable") -> None:
    """Jobs that run come to nothing."""
    for purpose in Purpose:
        if ("Job", f"demo-{purpose}") in cluster.children and purpose not in cluster.fates:
            cluster.fails(purpose, reason, "the hub does not answer")


def ticks(cluster: Paired, reason: str = "SourceUnreachable", count: int = 4) -> None:
    for _ in range(count):
        cluster.tick()
        cluster.roll()
        down(cluster, reason)
        Status.model_validate(cluster.status)


def warned(cluster: Paired) -> list[str]:
    return [one["message"] for one in cluster.status.get("warnings", []) if one["reason"] == "VersionsUnread"]


# -- asked for anew


@PLACES
@pytest.mark.parametrize("reason", ["SourceUnreachable", "SourceUnauthorized", "SourceNotFound"])
def test_versions_asked_for_that_cannot_be_read_change_no_pod(weights: Weights, reason: str) -> None:
    cluster = serving(spec=replace(PAIRED, weights=weights))
    before, pair = cluster.deployment, cluster.status["pair"]
    repin(cluster, "x")
    cluster.commits[EAGLE] = NEW
    ticks(cluster, reason)
    assert cluster.deployment == before
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("PairCompatible")["reason"] == "PairMatches", "the pair that runs was compared"
    (message,) = warned(cluster)
    assert "pods keep theirs" in message
    assert "the hub does not answer" in message
    assert cluster.status["pair"] == pair
    assert cluster.status["nextPair"]["repin"] == "x"
    assert cluster.status["nextPair"]["failure"]["reason"] == reason
    cluster.now += BLOCKED_SECONDS
    cluster.tick()
    advance(cluster)
    assert cluster.status["pair"]["speculatorPin"]["resolved"] == NEW, "it goes on once the source answers"
    assert (cluster.templates, warned(cluster)) == (2, [])
    assert "nextPair" not in cluster.status


def test_that_it_could_not_be_read_is_told_once() -> None:
    cluster = serving()
    repin(cluster, "x")
    cluster.tick()
    down(cluster)
    assert ("Warning", "VersionsUnread") in told(cluster.tick())
    for _ in range(5):
        cluster.now += BLOCKED_SECONDS
        outcome = cluster.tick()
        down(cluster)
        assert outcome.events == ()


def test_other_edits_meanwhile_are_carried_out_with_the_versions_that_pods_have() -> None:
    cluster = serving()
    repin(cluster, "x")
    ticks(cluster)
    cluster.edit(replicas=3)
    ticks(cluster)
    assert cluster.deployment["spec"]["replicas"] == 3
    assert cluster.templates == 1
    cluster.edit(engine=replace(PAIRED.engine, args=("--enforce-eager",)))
    ticks(cluster)
    assert cluster.templates == 2
    assert COMMITS[VERIFIER] in cluster.engine_args


def test_the_annotation_taken_back_asks_for_nothing() -> None:
    cluster = serving()
    repin(cluster, "x")
    ticks(cluster)
    repin(cluster, "")
    ticks(cluster)
    assert "nextPair" not in cluster.status
    repin(cluster, "y")
    advance(cluster)
    made = len(cluster.made)
    cluster.commits[EAGLE] = NEW
    repin(cluster, "")
    advance(cluster)
    assert (cluster.templates, len(cluster.made)) == (1, made), "taken away it is no new value"


def test_another_pair_is_made_unread_as_before() -> None:
    cluster = serving()
    cluster.edit(speculator=Speculator(Method.DRAFT_MODEL, hub(DRAFT)))
    ticks(cluster)
    assert DRAFT in " ".join(cluster.engine_args)
    assert cluster.condition("PairCompatible")["reason"] == "PairUnread"


def test_the_table_goes_on_being_tuned_meanwhile() -> None:
    cluster = serving()
    repin(cluster, "x")
    ticks(cluster)
    version = cluster.table["version"]
    for _ in range(60):
        cluster.tick(observed(cluster, batch=200, survival=0.2))
    assert cluster.table["version"] > version
    assert cluster.templates == 1


# -- what status had is lost


def lost(cluster: Paired) -> None:
    cluster.status = {}
    cluster.forget()


def garbled(cluster: Paired) -> None:
    """As a release leaves it that packs facts in another way."""
    cluster.notes = notes.manifest(cluster.spec, {"facts": ["y:another way"]})
    cluster.forget()


def missing(cluster: Paired) -> None:
    """Somebody deleted the notes."""
    cluster.notes = None
    cluster.forget()


@PLACES
@pytest.mark.parametrize("what", [lost, garbled, missing])
@pytest.mark.parametrize("reason", ["SourceUnreachable", "SourceUnauthorized"])
def test_without_what_status_knew_pods_keep_their_versions(
    weights: Weights, what: Callable[[Paired], None], reason: str
) -> None:
    cluster = serving(spec=replace(PAIRED, weights=weights))
    template = cluster.deployment["spec"]["template"]
    what(cluster)
    ticks(cluster, reason, 6)
    assert cluster.deployment["spec"]["template"] == template
    if weights.cache is None and reason == "SourceUnreachable":
        assert cluster.condition("Ready")["status"] == "True"
        assert cluster.condition("PairCompatible")["reason"] == "PairUnread"
    cluster.now += 4000.0
    advance(cluster)
    cluster.settle()
    assert cluster.deployment["spec"]["template"] == template
    assert cluster.condition("PairCompatible")["reason"] == "PairMatches"
    assert cluster.look().actions == ()


@PLACES
@pytest.mark.parametrize("what", [lost, garbled, missing])
def test_from_a_cache_too_a_branch_that_moved_is_followed_when_asked_for(
    weights: Weights, what: Callable[[Paired], None]
) -> None:
    """Caches know versions by a key that tells no commit: the label proves which one it is."""
    cluster = serving(spec=replace(PAIRED, weights=weights))
    template = cluster.deployment["spec"]["template"]
    what(cluster)
    cluster.commits[EAGLE] = cluster.commits[VERIFIER] = NEW
    advance(cluster)
    cluster.settle()
    assert cluster.deployment["spec"]["template"] == template, "nobody asked for it"
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.look().actions == ()
    cluster.forget()
    cluster.settle()
    assert cluster.templates == 1
    cluster.edit(replicas=3)
    cluster.settle()
    assert cluster.templates == 1
    repin(cluster, "x")
    advance(cluster)
    assert cluster.templates == 2
    assert template != cluster.deployment["spec"]["template"]


OTHER = "me/Qwen3-8B-eagle3"


class Copied(Paired):
    """OTHER is as EAGLE is, under its own name."""

    def facts(self, name: str) -> Any:
        found = super().facts(EAGLE if name == OTHER else name)
        pin = replace(found.pin, location=OTHER, resolved=NEW) if name == OTHER else found.pin
        return replace(found, pin=pin)


@PLACES
@pytest.mark.parametrize("change", ["revision", "speculator"])
def test_an_edit_that_the_operator_missed_is_no_loss(weights: Weights, change: str) -> None:
    """What another release has packed is not understood, and still says what was asked for: not this."""
    cluster = Copied(spec=replace(PAIRED, weights=weights))
    advance(cluster)
    garbled(cluster)
    other = drawn(OTHER) if change == "speculator" else PAIRED.speculator
    source = replace(hub(VERIFIER), revision="v2") if change == "revision" else hub(VERIFIER)
    cluster.commits[VERIFIER] = NEW if change == "revision" else COMMITS[VERIFIER]
    cluster.edit(verifier=replace(PAIRED.verifier, source=source), speculator=other)
    advance(cluster)
    cluster.settle()
    assert cluster.templates == 2
    assert cluster.condition("Ready")["status"] == "True"


class Claimed(Paired):
    """The verifier lies in a claim: its version is a hash over files, which no template tells."""

    def facts(self, name: str) -> Any:
        found = super().facts(VERIFIER if "pvc" in name else name)
        pin = Pin(Scheme.PVC, "theirs/qwen3-8b", "", f"sha256:{7:064x}")
        return replace(found, pin=pin) if "pvc" in name else found


@pytest.mark.parametrize("what", [lost, garbled, missing])
def test_pods_of_which_nothing_is_known_are_left_alone(what: Callable[[Paired], None]) -> None:
    source = ModelSource(Scheme.PVC, "theirs/qwen3-8b")
    cluster = Claimed(spec=replace(PAIRED, verifier=replace(PAIRED.verifier, source=source)))
    advance(cluster)
    cluster.settle()
    before = cluster.deployment
    what(cluster)
    ticks(cluster, count=8)
    assert cluster.deployment == before
    cluster.now += 4000.0
    advance(cluster)
    cluster.settle()
    assert cluster.templates == 1
    assert cluster.condition("Ready")["status"] == "True"


def test_a_drafter_that_was_taken_away_comes_back_as_the_spec_has_it(tuner: Any) -> None:
    cluster = serving(spec=replace(PAIRED, speculation=Speculation(off_policy=OffPolicy.REMOVE)))
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.settle()
    template = cluster.deployment["spec"]["template"]
    garbled(cluster)
    ticks(cluster)
    assert cluster.deployment["spec"]["template"] == template
    tuner.bring_back(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.tick()
    args = cluster.engine_args
    assert args[args.index("--revision") + 1] == COMMITS[VERIFIER]
    assert COMMITS[VERIFIER] not in args[args.index("--speculative-config") + 1], "not the verifier's version"


# -- nothing is looked at any more


def off_by_setting(cluster: Paired) -> None:
    cluster.capabilities = replace(LOOKING, check_pairs=False)


def off_without_image(cluster: Paired) -> None:
    cluster.capabilities = replace(LOOKING, job_image="")


def off_by_spec(cluster: Paired) -> None:
    cluster.edit(weights=replace(cluster.spec.weights, check=Check.DISABLED))


@pytest.mark.parametrize("off", [off_by_setting, off_without_image, off_by_spec])
def test_checks_turned_off_and_on_again_replace_no_pod(off: Callable[[Paired], None]) -> None:
    cluster = serving()
    before, pair = cluster.deployment["spec"], cluster.status["pair"]
    off(cluster)
    for _ in range(3):
        cluster.tick()
        cluster.forget()
    assert cluster.deployment["spec"] == before
    assert cluster.condition("PairCompatible")["reason"] == "NotChecked"
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.status["pair"] == pair, "a restart must not forget what pods run"
    repin(cluster, "x")
    ticks(cluster)
    repin(cluster, "")
    cluster.capabilities = LOOKING
    cluster.edit(weights=Weights())
    ticks(cluster)
    assert cluster.deployment["spec"] == before
    assert cluster.condition("PairCompatible")["reason"] == "PairMatches"


@pytest.mark.parametrize("off", [off_by_setting, off_without_image, off_by_spec])
def test_without_checks_the_next_rollout_is_as_the_spec_says(off: Callable[[Paired], None]) -> None:
    cluster = serving()
    off(cluster)
    cluster.edit(engine=replace(PAIRED.engine, args=("--enforce-eager",)))
    cluster.settle()
    assert cluster.templates == 2
    assert "--revision" not in cluster.engine_args
    assert cluster.tick().actions == ()
    assert cluster.remembered is not None
    assert "facts" not in cluster.remembered, "nothing is kept of a pair that the status does not name"


def test_a_cache_given_up_is_given_up_once_and_at_the_versions_that_were_known() -> None:
    cluster = serving(spec=replace(PAIRED, weights=CACHED))
    cluster.edit(weights=Weights(repin="x"))
    ticks(cluster, count=6)
    assert cluster.templates == 2, "that the user asked for"
    assert COMMITS[VERIFIER] in cluster.engine_args


@pytest.mark.parametrize("looks", [True, False])
def test_a_revision_that_the_user_takes_away_is_followed(looks: bool) -> None:
    """The template names a commit because the spec did."""
    source = replace(hub(VERIFIER), revision="9" * 40)
    spec = replace(PAIRED, verifier=replace(PAIRED.verifier, source=source))
    cluster = Paired(spec=spec, capabilities=replace(LOOKING, check_pairs=False))
    cluster.settle()
    cluster.capabilities = replace(LOOKING, check_pairs=looks)
    cluster.edit(verifier=PAIRED.verifier)
    advance(cluster)
    cluster.settle()
    assert "9" * 40 not in cluster.engine_args
    assert cluster.templates == 2


# -- walks


QUIET = st.sampled_from(
    [
        ("repin", "x"), ("repin", "y"), ("repin", ""), ("restart", None), ("lost", None), ("garbled", None),
        ("missing", None), ("wait", 30.0), ("wait", 400.0), ("wait", 25_000.0), ("moved", EAGLE), ("moved", VERIFIER),
        ("refused", None), ("check", False), ("check", True), ("image", ""), ("image", LOOKING.job_image),
    ]
)  # fmt: skip
"""What is no reason to replace pods while no source answers."""


def step(cluster: Paired, kind: str, value: Any) -> None:
    if kind == "repin":
        repin(cluster, value)
    elif kind == "restart":
        cluster.memory, cluster.applied, cluster.remembered = None, {}, None
    elif kind == "lost":
        cluster.status = {}
    elif kind == "garbled":
        cluster.notes, cluster.remembered = notes.manifest(cluster.spec, {"facts": ["y:another way"]}), None
    elif kind == "missing":
        cluster.notes, cluster.remembered = None, None
    elif kind == "wait":
        cluster.now += value
    elif kind == "moved":
        cluster.commits[value] = NEW
    elif kind == "refused":
        down(cluster, "SourceUnauthorized")
    elif kind == "check":
        cluster.capabilities = replace(cluster.capabilities, check_pairs=value)
    else:
        cluster.capabilities = replace(cluster.capabilities, job_image=value)


@PLACES
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(QUIET, max_size=8))
def test_as_long_as_no_source_answers_nothing_replaces_pods(weights: Weights, steps: list[tuple[str, Any]]) -> None:
    cluster = serving(spec=replace(PAIRED, weights=weights))
    template = cluster.deployment["spec"]["template"]
    for kind, value in steps:
        step(cluster, kind, value)
        ticks(cluster, count=2)
        assert cluster.deployment["spec"]["template"] == template
    cluster.capabilities = LOOKING
    cluster.edit(speculator=drawn(EAGLE))
    for _ in range(4):
        cluster.now += 4000.0
        advance(cluster)
    cluster.settle()
    assert cluster.condition("Ready")["status"] == "True", cluster.condition("Ready")
    assert cluster.look().actions == ()
