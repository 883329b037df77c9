"""A quantized verifier and drafter in the real engine: read by it as the product reads them, and serving with drafts.

Both are made of the small models by `realengine/quantize.py`, with the library that llm-compressor writes with. vLLM
gets the command line that the operator renders, which names no quantization: the engine takes it from the checkpoint.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from realengine import paths
from realengine.image import seed
from realengine.serving import CPU_FLAGS, environment
from speculative_operator.api.convert import to_domain
from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec, Mode
from speculative_operator.domain.table import KTable
from speculative_operator.engines.pairs import rules_of
from speculative_operator.engines.registry import engine_for
from speculative_operator.pairing import fit_weights, reading
from speculative_operator.pairing.findings import Code
from speculative_operator.pairing.judge import judge
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.local import open_folder

ENGINE = paths.python()
pytestmark = [pytest.mark.skipif(ENGINE is None, reason=paths.MISSING), pytest.mark.timeout(1800)]
SECONDS = 1500
QUANTIZE = paths.ROOT / "dev" / "realengine" / "quantize.py"
PROBE = Path(__file__).with_name("verdict_probe.py")
SCHEMES = {"W8A8": ("I8", "CompressedTensorsW8A8Int8"), "FP8_DYNAMIC": ("F8_E4M3", "CompressedTensorsW8A8Fp8")}
"""What llm-compressor calls it -> number format in the files, and the class that vLLM loads it with."""
TRAINED = (paths.models() / "target" / "train_info.json").exists()
"""False for models of random weights, which accept by chance."""
K, SEQS, TOKENS = 3, 4, 48
PROMPTS = ("def read_file(path):\n", "import os\n\n", "class Reader:\n    def __init__(self", "for name in names:\n")


@dataclass(frozen=True)
class Quantized:
    """What one scheme's pair came to, in the product and in the engine."""

    verifier: ModelFacts
    drafter: ModelFacts
    spec: DeploymentSpec
    alone: Mapping[str, Any]
    drafting: Mapping[str, Any]


def asked_for(scheme: str) -> DeploymentSpec:
    sources = {part: f"pvc://models/{scheme}-{part}" for part in ("target", "draft")}
    body = {
        "verifier": {"model": sources["target"], "maxModelLen": 1024, "maxNumSeqs": SEQS, "dtype": "float32"},
        "speculator": {"method": "draft_model", "model": sources["draft"]},
        "speculation": {"mode": "Static", "numSpeculativeTokens": K, "maxSpeculativeTokens": K},
        "engine": {"version": paths.VLLM, "args": list(CPU_FLAGS)},
        "accelerator": {"perReplica": 0},
    }
    return to_domain({"metadata": {"name": "pair", "namespace": "models"}, "spec": body})


def question(name: str, spec: DeploymentSpec, places: Path) -> dict[str, Any]:
    args = engine_for(spec).container(resolve(spec), KTable.constant(K, SEQS)).args
    own = [argument.replace("/mnt/models/models/", f"{places}/") for argument in args]
    return {"name": name, "args": own, "prompts": PROMPTS, "tokens": TOKENS}


def run(words: list[str], variables: Mapping[str, str], told: str = "") -> str:
    done = subprocess.run(
        [str(ENGINE), "-P", *words], input=told, capture_output=True, text=True, timeout=SECONDS, check=False,
        env={"PATH": "/usr/bin:/bin", "VLLM_LOGGING_LEVEL": "WARNING", **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module", params=SCHEMES)
def quantized_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Quantized]:
    scheme: str = request.param
    places, variables = tmp_path_factory.mktemp(scheme), environment(tmp_path_factory.mktemp("vllm"))
    for part in ("target", "draft"):
        run([str(QUANTIZE), scheme, str(paths.models() / part), str(places / f"{scheme}-{part}")], variables)
    seed(Path(str(ENGINE)).parent.parent, variables["VLLM_CACHE_ROOT"])
    spec = asked_for(scheme)
    without = replace(spec, speculation=replace(spec.speculation, mode=Mode.DISABLED))
    asked = [question("alone", without, places), question("drafting", spec, places)]
    answers = json.loads(run([str(PROBE)], variables, json.dumps(asked)).strip().splitlines()[-1])
    verifier, drafter = (inspect(open_folder(places / f"{scheme}-{part}")) for part in ("target", "draft"))
    return scheme, Quantized(verifier, drafter, spec, *answers)


def test_the_files_are_quantized_and_the_product_says_by_what(quantized_pair: tuple[str, Quantized]) -> None:
    scheme, pair = quantized_pair
    number, _ = SCHEMES[scheme]
    for facts in (pair.verifier, pair.drafter):
        assert reading.quantization(facts) == "compressed-tensors"
        assert facts.weights.parameters[number] > 0
    assert pair.verifier.weights.parameters[number] > pair.verifier.weights.parameters["F32"]


def test_the_engine_loads_what_the_product_read(quantized_pair: tuple[str, Quantized]) -> None:
    scheme, pair = quantized_pair
    assert "problem" not in pair.drafting, pair.drafting
    loaded = pair.drafting["loaded"]
    assert len(loaded) == 2
    for facts, told in zip((pair.verifier, pair.drafter), loaded, strict=True):
        assert told["quantization"] == reading.quantization(facts)
        assert told["schemes"] == [SCHEMES[scheme][1]]
        counted = fit_weights.weights(facts, pair.spec.verifier.dtype)
        assert counted is not None
        assert told["bytes"] == pytest.approx(counted.verifier, rel=0.02), "but for the headers of the files"


def test_the_pair_fits_and_serves_with_drafts(quantized_pair: tuple[str, Quantized]) -> None:
    _, pair = quantized_pair
    verdict = judge(pair.verifier, pair.drafter, pair.spec, rules_of(pair.spec))
    assert verdict.errors == ()
    assert "problem" not in pair.drafting, pair.drafting
    assert pair.drafting["drafted"] > 0
    assert not TRAINED or pair.drafting["accepted"] > 0.1 * pair.drafting["drafted"]
    assert pair.drafting["texts"] == pair.alone["texts"], "speculation changes no greedy text"


def test_another_quantization_in_the_spec_is_an_error(quantized_pair: tuple[str, Quantized]) -> None:
    _, pair = quantized_pair
    spec = replace(pair.spec, verifier=replace(pair.spec.verifier, quantization="awq"))
    verdict = judge(pair.verifier, pair.drafter, spec, rules_of(spec))
    assert [one.code for one in verdict.errors] == [Code.QUANTIZATION_DIFFERS]
