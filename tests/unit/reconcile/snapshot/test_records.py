"""What status keeps of a pair: it comes back whole, and whatever stands there instead reads as nothing known."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.paired import EAGLE, FOREIGN, PAIRED, VERIFIER, Paired, drawn, hub
from tests.unit.reconcile.worlds import NOW, OFF

from speculative_operator.api.status import Pair
from speculative_operator.domain.formats import duration, size
from speculative_operator.domain.models import ModelFacts, Pin, WeightFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import Method, Mode, ModelSource, Scheme, Speculator, Weights
from speculative_operator.reconcile.pair.pinning import former_pair, pin_models
from speculative_operator.reconcile.snapshot.records import (
    Failure,
    Known,
    Record,
    blank,
    following,
    keys,
    pack,
    read,
    to_status,
    unpack,
    wanted_of,
)
from speculative_operator.render.metadata import pair_hash

FACTS = Paired().facts(VERIFIER), Paired().facts(EAGLE)
KNOWN = Known(*FACTS)


def whole() -> Record:
    record = blank(wanted_of(PAIRED), PAIRED).with_facts(*FACTS, NOW)
    adopted = pack(replace(KNOWN, drafter=PAIRED.speculator, adopted=True))
    failure = Failure(Reason.SOURCE_UNREACHABLE, "no answer", NOW, "uid-7")
    return replace(
        record, facts=adopted, hash="0123456789", verdict="Compatible", repin="again", cache="models",
        previous=("fedcba9876543210",), failure=failure,
    )  # fmt: skip


def test_a_record_comes_back_whole() -> None:
    block = to_status(whole())
    found = read(block, [whole().facts])
    assert found == whole()
    Pair.model_validate(block)
    known = found.known
    assert known is not None
    assert (known.verifier.pin, known.drafter, known.adopted) == (FACTS[0].pin, PAIRED.speculator, True)


DRAFTERS = st.builds(
    Speculator,
    method=st.sampled_from(Method),
    source=st.none() | st.builds(ModelSource, st.sampled_from(Scheme), st.text("abc/", min_size=1), st.text("v1")),
    tensor_parallel_size=st.none() | st.integers(1, 8),
    quantization=st.sampled_from(["", "fp8"]),
    parallel_drafting=st.booleans(),
    prompt_lookup_max=st.none() | st.integers(1, 9),
)


@settings(max_examples=60, deadline=None)
@given(drafter=st.none() | DRAFTERS, adopted=st.booleans(), speculator=st.booleans())
def test_what_was_read_comes_back_whole(drafter: Speculator | None, adopted: bool, speculator: bool) -> None:
    known = Known(FACTS[0], FACTS[1] if speculator else None, drafter if adopted else None, adopted)
    found = unpack(pack(known))
    assert found is not None
    assert found == replace(known, verifier=found.verifier, speculator=found.speculator)
    assert [facts.to_json() for facts in found.models] == [facts.to_json() for facts in known.models]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*to_status(whole()), "verifierPin", "speculatorPin", "failure"])


@settings(max_examples=150, deadline=None)
@given(changes=st.dictionaries(FIELDS, JSON, max_size=4))
def test_garbled_blocks_read_as_nothing_known(changes: dict[str, Any]) -> None:
    record = read({**to_status(whole()), **changes}, [whole().facts])
    block = to_status(record)
    if not record.verifier:
        assert block == {}
        return
    Pair.model_validate(block)
    assert read(block, [record.facts]) == record, "what was written is read as it was meant"


@given(st.text(max_size=60))
def test_garbled_facts_are_none(text: str) -> None:
    assert unpack(text) is None
    assert unpack(f"z:{text}") is None


def test_a_record_covers_less_than_it_holds_but_never_more() -> None:
    record, wanted = whole(), replace(wanted_of(PAIRED), repin="again")
    assert record.covers(wanted)
    assert record.covers(replace(wanted, speculator=None)), "mode Disabled"
    assert not record.covers(replace(wanted, speculator=hub(FOREIGN)))
    assert not record.covers(replace(wanted, verifier=replace(hub(VERIFIER), revision="v2")))
    assert not record.covers(replace(wanted, repin="once more"))
    assert not read({}).covers(wanted)
    alone = blank(replace(wanted, speculator=None), OFF)
    assert not alone.covers(wanted)


def test_a_checkpoint_named_twice_is_one_source() -> None:
    assert wanted_of(replace(PAIRED, speculator=drawn(VERIFIER))).speculator is None


def test_folders_in_use_are_those_of_both_pairs_and_of_the_one_before() -> None:
    status = {"pair": to_status(whole()), "nextPair": {"previous": ["0" * 16, 7]}}
    assert keys(status) == {FACTS[0].pin.key, FACTS[1].pin.key, "fedcba9876543210", "0" * 16}
    assert keys({"pair": "nonsense"}) == frozenset()


def test_the_way_back_is_kept_for_one_pair() -> None:
    before = whole()
    other = before.with_facts(FACTS[0], Paired().facts(FOREIGN), NOW)
    after = following(other, before)
    assert after.previous[0] == FACTS[1].pin.key, "the verifier is still in use"
    assert len(after.previous) <= 2
    assert following(before, before) == before
    assert following(before, None) == before


def pin(scheme: Scheme, location: str, resolved: str) -> ModelFacts:
    return ModelFacts(Pin(scheme, location, "", resolved), weights=WeightFacts(bytes=30))


@pytest.mark.parametrize(
    ("source", "found", "claim", "told"),
    [
        (
            ModelSource(Scheme.HF, "a/b", "main"), pin(Scheme.HF, "a/b", "c" * 40), "",
            ModelSource(Scheme.HF, "a/b", "c" * 40),
        ),
        (
            ModelSource(Scheme.OCI, "quay.io/a/b:v1"), pin(Scheme.OCI, "quay.io/a/b", "sha256:1"), "",
            ModelSource(Scheme.OCI, "quay.io/a/b@sha256:1"),
        ),
        (
            ModelSource(Scheme.PVC, "claim/a"), pin(Scheme.PVC, "claim/a", "sha256:1"), "models",
            ModelSource(Scheme.PVC, "claim/a", content="sha256:1"),
        ),
        (
            ModelSource(Scheme.OCI, "quay.io/a/b:v1"), pin(Scheme.OCI, "quay.io/a/b", "sha256:1"), "models",
            ModelSource(Scheme.OCI, "quay.io/a/b@sha256:1"),
        ),
        (
            ModelSource(Scheme.S3, "b/a"), pin(Scheme.S3, "b/a", "sha256:1"), "models",
            ModelSource(Scheme.PVC, f"models/.speculative-cache/models/{Pin(Scheme.S3, 'b/a', '', 'sha256:1').key}"),
        ),
    ],
)  # fmt: skip
def test_what_engines_are_told(source: ModelSource, found: ModelFacts, claim: str, told: ModelSource) -> None:
    spec = resolve(replace(PAIRED, verifier=replace(PAIRED.verifier, source=source), speculator=None))
    choice = pin_models(spec, Known(found, None), claim)
    assert choice.pinned.verifier.source == told
    assert choice.by_name == spec
    assert choice.pinned.weights.bytes == 30
    other = replace(found, pin=replace(found.pin, resolved="sha256:2"))
    assert pair_hash(pin_models(spec, Known(other, None), claim).pinned) != pair_hash(choice.pinned)


def test_a_pair_that_runs_is_known_with_the_way_it_drafts() -> None:
    record = whole()
    known = record.known
    assert known is not None
    other = replace(PAIRED, speculator=Speculator(Method.NGRAM), weights=Weights(repin="x"))
    held = former_pair(resolve(other), known, record.asked, "")
    assert held is not None
    assert pair_hash(held.pinned) == pair_hash(pin_models(resolve(PAIRED), KNOWN, "").pinned)
    assert former_pair(resolve(other), KNOWN, record.asked, "") is None, "no pod was made of it yet"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (999, "999B"), (1000, "1kB"), (16_381_470_720, "16.4GB"), (999_999, "1MB"), (4.2e12, "4.2TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "10s"), (31, "40s"), (59, "60s"), (61, "2m"), (3599, "1h"), (3601, "1h10m"), (7200, "2h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("place", ["", "models"])
def test_a_drafter_that_was_removed_leaves_the_pods_of_mode_off(place: str) -> None:
    """A user who sets mode Disabled then replaces none, however large the drafter is: a start's budget is by bytes."""
    spec = replace(PAIRED, speculation=replace(PAIRED.speculation, mode=Mode.DISABLED))
    drafting, off = (pin_models(resolve(one), KNOWN, place).pinned for one in (PAIRED, spec))
    removed = drafting.without_speculator()
    assert removed == off
    assert 0 < removed.weights.bytes < drafting.weights.bytes
