"""What a row of the catalogue is worth to an object: by published acceptance, by the engine's tables, by the text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    DeploymentSpec,
    Method,
    ModelSource,
    Scheme,
    Verifier,
    Workload,
)
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.engines.pairs import choose
from speculative_operator.pairing.catalogue import load_packaged
from speculative_operator.pairing.catalogue_rows import Entry
from speculative_operator.pairing.ranking import Worth, worth_of
from speculative_operator.physics.catalog import find_accelerator, find_model

LIVE = KnobSpace(Actuator.LIVE, (0, 1, 3, 5), 256, full_graphs=True)
ROW = Entry("Qwen/Qwen3-8B", "org/head", Method.EAGLE3, "a card", "2026")
FACTS = PairFacts(find_model("Qwen/Qwen3-8B"), None, find_accelerator("H100-SXM"), method=Method.EAGLE3)


def worth(knobs: KnobSpace = LIVE, facts: PairFacts = FACTS, text: Workload = Workload.MIXED, **row: object) -> Worth:
    return worth_of(replace(ROW, **row), facts, knobs, text)  # type: ignore[arg-type]


def test_published_acceptance_decides_and_counts_as_known_with_its_k_alone() -> None:
    poor, good = (worth(acceptance_length=length, acceptance_k=3) for length in (1.5, 3.2))
    assert poor.percent < worth().percent < good.percent
    assert (poor.known, worth().known, worth(acceptance_length=3.2).known) == (True, False, False)
    assert worth(acceptance_length=3.2, k=3) == good


@pytest.mark.parametrize("length", [1.0, 64.9])
def test_any_published_length_is_a_finite_gain(length: float) -> None:
    found = worth(acceptance_length=length, acceptance_k=64)
    assert -100.0 < found.percent < 1000.0


def test_a_constant_k_pays_at_every_load() -> None:
    constant = worth(replace(LIVE, actuator=Actuator.RESTART, ks=(5,)))
    assert (constant.steered, worth().steered) == (2, 0)
    assert constant.percent < worth().percent
    assert worth(replace(LIVE, actuator=Actuator.NONE, ks=(0,))).percent <= 0.0


def test_the_text_counts() -> None:
    assert worth(text=Workload.CREATIVE).percent < worth(text=Workload.CODE).percent


def test_a_stand_in_orders_and_tells_no_figure() -> None:
    unknown = worth(facts=replace(FACTS, verifier=None))
    assert unknown == replace(worth(), told=False)
    assert str(unknown) == "K follows the load, no acceptance published at a known K"
    assert " % expected over 1 to 64 requests" in str(worth())


def picked(verifier: str) -> str:
    spec = DeploymentSpec(
        "x", "x", "", 1, Verifier(ModelSource(Scheme.HF, verifier), "x"),
        accelerator=AcceleratorRequest(product="H100-SXM"),
    )  # fmt: skip
    entry = choose(spec, load_packaged()).entry
    assert entry is not None
    return entry.title


@pytest.mark.parametrize(
    ("verifier", "speculator"),
    [
        ("openai/gpt-oss-20b", "nebius/EAGLE3-gpt-oss-20b"),  # not the head whose K is constant
        ("Qwen/Qwen3.5-9B", "z-lab/Qwen3.5-9B-DFlash"),  # not one MTP layer
        ("Qwen/Qwen3-32B", "RedHatAI/Qwen3-32B-speculator.eagle3"),  # not the one with acceptance length 1.91
    ],
)
def test_what_is_picked_with_the_default_release(verifier: str, speculator: str) -> None:
    assert picked(verifier) == speculator
