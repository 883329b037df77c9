"""Published rows in the terms of physics: names, K, loads and lengths as publications spell them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_lab.cases.rows import LARGEST_K, Drafting, Kind, read_case
from speculative_lab.cases.shapes import (
    accelerators_needed,
    estimated_shape,
    place_accelerator,
    place_model,
    precision,
)
from speculative_lab.cases.workloads import survival_of, text_of
from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.catalog import find_accelerator


@pytest.mark.parametrize(
    ("name", "stated", "found", "count"),
    [
        ("H100-80G", "1", "H100-SXM", 1),
        ("2x A100", "", "A100-80GB", 2),
        ("8xH100? (blog)", "", "H100-SXM", 8),
        ("H100? x2", "", "H100-SXM", 2),
        ("H100-NVL-94G", "1", "H100-NVL", 1),
        ("MI355X", "4", "MI355X", 4),
        ("NVIDIA A100 80GB", "", "A100-80GB", None),
        ("RTX3090", "4", "RTX-3090", 4),
        ("Strix Halo iGPU", "1", "Strix-Halo", 1),
        ("NVIDIA-H100-80GB-HBM3", "", "H100-SXM", None),
    ],
)
def test_accelerators_by_name(name: str, stated: str, found: str, count: int | None) -> None:
    accelerator, number, assumed = place_accelerator(name, stated)
    assert (accelerator.name, number, assumed) == (found, count, ())


def test_an_unknown_accelerator_is_told() -> None:
    accelerator, count, assumed = place_accelerator("quantum abacus", "")
    assert accelerator.name == "H100-SXM"
    assert count is None
    assert "quantum abacus" in assumed[0]


@pytest.mark.parametrize(
    ("name", "found", "size"),
    [
        ("Llama3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", 2.0),
        ("gemma-4-31B-it QAT FP8", "google/gemma-4-31B-it", 1.0),
        ("gemma-4-31B W4A16", "google/gemma-4-31B-it", 0.5),
        ("Qwen2.5-7B FP16", "Qwen/Qwen2.5-7B-Instruct", 2.0),
        ("Qwen3.5-122B", "Qwen/Qwen3.5-122B-A10B", 2.0),
        ("GLM-4.7-FP8", "zai-org/GLM-4.7", 1.0),
        ("Kimi-K2.5-W4A8", "moonshotai/Kimi-K2.5", 0.5),
        ("GLM-4.5-Air-106B", "zai-org/GLM-4.5-Air", 2.0),
        ("Kimi-K2.5", "moonshotai/Kimi-K2.5", 0.55),
        ("Qwen3-8B FP8 vs BF16", "Qwen/Qwen3-8B", 1.0),
    ],
)
def test_models_by_name(name: str, found: str, size: float) -> None:
    shape, assumed = place_model(name, mixture=False)
    assert (shape.name, shape.bytes_per_parameter, assumed) == (found, size, ())


def test_unknown_models_are_placed_by_their_size() -> None:
    dense, assumed = place_model("Qwen3.8-27B Q4_K_XL", mixture=False)
    assert dense.parameters == 27e9 == dense.active_parameters
    assert dense.bytes_per_parameter == 0.5
    assert 40 <= dense.layers <= 64
    assert assumed
    mixture, _ = place_model("Nova-100B-A9B", mixture=False)
    assert (mixture.parameters, mixture.active_parameters, mixture.experts) == (100e9, 9e9, 128)
    nameless, assumed = place_model("unknown", mixture=True)
    assert (nameless.parameters, nameless.experts) == (8e9, 0)
    assert "dense 8B" in assumed[0]


@pytest.mark.parametrize("billions", [0.5, 8, 70, 405])
def test_an_estimated_shape_has_the_parameters_of_its_layers(billions: float) -> None:
    shape, _ = estimated_shape(f"some-{billions}B", mixture=False)
    assert 12 * shape.layers * shape.hidden_size**2 == pytest.approx(billions * 1e9, rel=0.1)


def test_precision_and_accelerators_follow_from_the_weights() -> None:
    assert [precision(name) for name in ("x AWQ", "x-FP8", "x", "gpt-oss-20b")] == [0.5, 1.0, 2.0, 0.55]
    h100 = find_accelerator("H100")
    assert h100 is not None
    for name, count in (("Llama-3.1-8B", 1), ("Llama-3.3-70B", 4), ("Llama-3.3-70B FP8", 2), ("DeepSeek-R1", 16)):
        assert accelerators_needed(place_model(name, mixture=False)[0], h100) == count


@pytest.mark.parametrize(
    ("k", "method", "expected"),
    [
        ("3", "eagle3", Drafting(Kind.STATIC, 3)),
        ("3?", "eagle3", Drafting(Kind.STATIC, 3)),
        ("(2?)", "eagle3", Drafting(Kind.STATIC, 2)),
        ("acc-target0.80(k1)", "draft_model", Drafting(Kind.STATIC, 1)),
        ("acc-target0.80", "draft_model", Drafting(Kind.STATIC, 3)),
        ("goodput(k4)", "draft_model", Drafting(Kind.STATIC, 4)),
        ("goodput(off, after probing)", "draft_model", Drafting(Kind.OFF, 0)),
        ("0", "mtp", Drafting(Kind.OFF, 0)),
        ("best of 1..5", "eagle", Drafting(Kind.BEST, 5, 1)),
        ("adaptive[3..12]", "mtp", Drafting(Kind.BEST, 12, 3)),
        ("adaptive", "mtp", Drafting(Kind.BEST, 7, 1)),
        ("confidence early exit max10 thr0.6", "draft_model", Drafting(Kind.BEST, 10, 1)),
        ("SD k=5", "draft_model", Drafting(Kind.STATIC, 5)),
        ("fixed12", "mtp", Drafting(Kind.STATIC, 12)),
        ("oracle", "eagle", Drafting(Kind.ORACLE, 10)),
        ("tree", "eagle3", Drafting(Kind.STATIC, 5, tree_tokens=60)),
        ("tree16", "eagle3 tree 4/4/16", Drafting(Kind.STATIC, 4, tree_tokens=16)),
        ("steps=8", "eagle3 tree", Drafting(Kind.STATIC, 8, tree_tokens=60)),
        ("", "ngram", Drafting(Kind.STATIC, 5)),
        ("999999999", "eagle", Drafting(Kind.STATIC, LARGEST_K)),
    ],
)
def test_k_as_publications_write_it(k: str, method: str, expected: Drafting) -> None:
    assert read_case({"K": k, "method": method}).drafting == expected


def test_a_schedule_decides_by_load_and_may_be_compared_with_a_constant() -> None:
    row = {
        "method": "eagle3 + DSD [[1,32,3],[33,64,2],[65,128,1]]",
        "K": "schedule vs static 3",
        "load_kind": "concurrency",
        "load": "128",
    }
    case = read_case(row)
    assert case.drafting == Drafting(Kind.STATIC, 1, dynamic=True)
    assert case.baseline == Drafting(Kind.STATIC, 3)
    assert read_case({"K": "fixed12", "note": "baseline = fixed n=4"}).baseline == Drafting(Kind.STATIC, 4)
    assert read_case({"K": "3", "note": "baseline from another page"}).baseline is None


@pytest.mark.parametrize(
    ("kind", "load", "expected", "rate"),
    [
        ("batch", "64", 64.0, None),
        ("concurrency", "low", 4.0, None),
        ("concurrency", "", 1.0, None),
        ("req/s", "1.9 vs 3.9", 1.9, (1.9, 3.9)),
        ("req/s", "2", 2.0, (2.0, 2.0)),
    ],
)
def test_loads(kind: str, load: str, expected: float, rate: tuple[float, float] | None) -> None:
    case = read_case({"load_kind": kind, "load": load})
    assert (case.load, case.rate) == (expected, rate)


@pytest.mark.parametrize(
    ("method", "expected", "family"),
    [
        ("draft_model (AWQ copy of target)", Method.DRAFT_MODEL, "draft_model"),
        ("draft_model(assistant)", Method.MTP, "mtp"),
        ("arctic+suffix", Method.EAGLE3, "arctic"),
        ("suffix", Method.SUFFIX, "suffix"),
        ("p-eagle", Method.DFLASH, "p_eagle"),
        ("eagle2", Method.EAGLE, "eagle"),
        ("medusa", Method.MEDUSA, "medusa"),
    ],
)
def test_methods(method: str, expected: Method, family: str) -> None:
    case = read_case({"method": method})
    assert (case.method, case.family) == (expected, family)


def test_what_a_note_tells_of_acceptance_is_used() -> None:
    assert read_case({"note": "acceptance flat 0.86-0.91 from b=1 to 32"}).accept_rate == pytest.approx(0.885)
    assert read_case({"note": "acceptance rate 0.7"}).accept_rate == 0.7
    assert read_case({"note": "acceptance unusually high"}).accept_rate is None


@pytest.mark.parametrize(
    ("dataset", "context", "workload", "prompt", "output"),
    [
        ("GSM8K", "paper Table 5", Workload.STRUCTURED, 94, 166),
        ("ShareGPT greedy", "", Workload.CHAT, 355, 728),
        ("random 1K/1K", "1024/1024", None, 1024, 1024),
        ("prefix_repetition", "400/100", None, 400, 100),
        ("code", "16K", Workload.CODE, 16384, 300),
        ("", "180 out", Workload.MIXED, 300, 180),
        ("narrative", "0/0", Workload.CREATIVE, 100, 500),
    ],
)
def test_texts(dataset: str, context: str, workload: Workload | None, prompt: float, output: float) -> None:
    text, _ = text_of(dataset, context)
    assert (text.workload, text.prompt, text.output) == (workload, prompt, output)


@given(st.sampled_from(["eagle", "ngram", "mtp", "suffix", "p_eagle", "arctic", "medusa", "new"]), st.integers(0, 64))
def test_acceptance_of_every_family_is_a_survival_curve(family: str, k: int) -> None:
    for dataset in ("gsm8k", "code", "cnn", "chat", "prose", "random", ""):
        survival = survival_of(family, text_of(dataset, "")[0], k)
        assert survival.shape == (k,)
        assert all(0.0 <= later <= earlier <= 1.0 for earlier, later in pairwise(survival))


def test_an_acceptance_length_beyond_an_unknown_k_raises_k() -> None:
    assert read_case({"accept_len": "6.2"}).drafting.k == 7
    assert read_case({"accept_len": "6.2", "K": "3"}).drafting.k == 3
