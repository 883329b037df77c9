"""What the verdict says of a pair, the real engine does: a pair with an Error does not start, or has nothing accepted
where that is what the Error says; every other pair starts and drafts, and has drafts accepted where it was made to.

The pairs are made of the small models, changed in one thing each. vLLM gets the command line that the operator renders
for the spec that was judged.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.vllm.verdict_models import (
    Model,
    as_speculators,
    changed,
    following,
    narrowed,
    padded,
    partial,
    reading,
    rows,
    shortened,
)

from realengine import paths
from realengine.image import seed
from realengine.serving import CPU_FLAGS, environment
from speculative_operator.api.convert import to_domain
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.pairs import rules_of
from speculative_operator.engines.registry import engine_for
from speculative_operator.pairing.findings import Code
from speculative_operator.pairing.judge import judge
from speculative_operator.pairing.verdict import Verdict
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.local import open_folder

ENGINE = paths.python()
MODELS = paths.models()
pytestmark = pytest.mark.skipif(ENGINE is None, reason=paths.MISSING)
PROBE = Path(__file__).with_name("verdict_probe.py")
SECONDS = 900
TRAINED = (MODELS / "target" / "train_info.json").exists()
"""False for models of random weights, which accept by chance."""
K, LENGTH, TOKENS, SEQS = 3, 1024, 96, 4
PROMPTS = ("def read_file(path):\n", "import os\n\n", "class Reader:\n    def __init__(self", "for name in names:\n")
DRAFT, HEAD, OWN = "draft_model", "eagle3", "its-own-drafter"
Make = Callable[[], Model] | None
IN_VAIN = 0.02
"""Share of drafts that may be accepted by chance where a finding says that they are accepted by chance only."""


def target() -> Model:
    return Model.read(MODELS / "target")


def draft() -> Model:
    return Model.read(MODELS / "draft")


def noise() -> Model:
    """A head that nobody trained."""
    return Model.read(MODELS / "eagle3")


def halves(model: Model) -> Model:
    """In 16 bits."""
    model.tensors = {name: tensor.astype("float16") for name, tensor in model.tensors.items()}
    return changed(model, dtype="float16")


def head() -> Model:
    """A head that has something accepted."""
    return following(noise(), target())


@dataclass(frozen=True)
class Case:
    """A pair, what is asked of it, and what is to come of that."""

    name: str
    method: str
    speculator: Make
    errors: frozenset[Code] = frozenset()
    """That the verdict has, exactly."""
    others: frozenset[Code] = frozenset()
    """Warnings and Infos among those that it has."""
    serves: bool = True
    accepts: bool | None = True
    """Whether drafts are accepted; None: nobody can tell."""
    verifier: Callable[[], Model] = target
    of_verifier: Mapping[str, Any] = field(default_factory=dict)
    """Fields of spec.verifier."""
    of_speculator: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> DeploymentSpec:
        model = {} if self.speculator is None else {"model": f"pvc://models/{self.name}-speculator"}
        verifier = {"model": f"pvc://models/{self.name}-verifier", "maxModelLen": LENGTH, "maxNumSeqs": SEQS}
        body = {
            "verifier": {**verifier, "dtype": "float32", **self.of_verifier},
            "speculator": {"method": self.method, **model, **self.of_speculator},
            "speculation": {"mode": "Static", "numSpeculativeTokens": K, "maxSpeculativeTokens": K},
            "engine": {"version": paths.VLLM, "args": list(CPU_FLAGS)},
            "accelerator": {"perReplica": 0},
        }
        meta = {"name": "pair", "namespace": "models"}
        return to_domain({"metadata": meta, "spec": {key: _given(value) for key, value in body.items()}})


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def fits(name: str, method: str, speculator: Make, *others: Code, **more: Any) -> Case:
    """Starts and has drafts accepted. `others`: Warnings and Infos that the verdict has."""
    return Case(name, method, speculator, others=frozenset(others), **more)


def ends(name: str, method: str, speculator: Make, *errors: Code, **more: Any) -> Case:
    """The engine does not come to serve."""
    return Case(name, method, speculator, frozenset(errors), serves=False, **more)


def drafts_in_vain(name: str, method: str, speculator: Make, *errors: Code) -> Case:
    """It serves, and next to nothing is accepted."""
    return Case(name, method, speculator, frozenset(errors), accepts=False)


VOCABULARY = (
    drafts_in_vain("other-tokens", DRAFT, lambda: shortened(draft(), 2000, turned=True), Code.VOCABULARY_DIFFERS),
    fits(
        "mapped-tokens", DRAFT, lambda: rows(shortened(draft(), 2000, turned=False), 2000), Code.VOCABULARY_MAPPED,
        of_speculator={"heterogeneousVocabulary": True},
    ),
    ends("fewer-rows", DRAFT, lambda: rows(draft(), 2000), Code.VOCABULARY_SIZE_DIFFERS),
    ends("padded-rows", DRAFT, lambda: rows(draft(), 2064), Code.VOCABULARY_SIZE_DIFFERS),
    fits("head-of-fewer-tokens", HEAD, lambda: partial(head(), 1024)),
    drafts_in_vain(
        "head-without-map", HEAD, lambda: partial(head(), 1024, mapped=False), Code.DRAFT_MAP_MISSING
    ),
    ends(
        "head-of-fewer-rows", HEAD, lambda: changed(head(), draft_vocab_size=1024), Code.DRAFT_MAP_MISSING,
        Code.DRAFT_MAP_SHAPE,
    ),
    ends("head-of-more-tokens", HEAD, lambda: changed(head(), vocab_size=4096), Code.VOCABULARY_SIZE_DIFFERS),
    ends("head-half-padded", HEAD, lambda: changed(head(), vocab_size=2064), Code.VOCABULARY_SIZE_DIFFERS),
    fits("head-padded", HEAD, lambda: padded(head(), 2064), Code.VOCABULARY_SIZE_DIFFERS),
)  # fmt: skip
HIDDEN = (
    ends("narrow-head", HEAD, lambda: narrowed(noise()), Code.HIDDEN_SIZE_DIFFERS),
    ends("two-layers", HEAD, lambda: reading(head(), 0, 1), Code.AUXILIARY_INPUT_DIFFERS),
    ends("layers-beyond", HEAD, lambda: reading(head(), 0, 1, 9), Code.AUXILIARY_LAYERS_BEYOND),
)
METHOD = (
    ends("head-as-draft-model", DRAFT, head, Code.METHOD_DIFFERS),
    ends("draft-model-as-head", HEAD, draft, Code.METHOD_DIFFERS, Code.HIDDEN_SIZE_DIFFERS),
    ends("head-as-eagle", "eagle", head, Code.METHOD_DIFFERS, Code.AUXILIARY_INPUT_DIFFERS),
    ends("modules-of-a-llama", "mtp", None, Code.MODULES_ABSENT),
    ends("untrained-for-one-pass", DRAFT, draft, Code.PARALLEL_UNTRAINED, of_speculator={"parallelDrafting": True}),
    fits("speculators-format", HEAD, lambda: as_speculators(head(), "tiny/target")),
    fits("other-verifier-named", HEAD, lambda: as_speculators(head(), "Qwen/Qwen3-8B"), Code.VERIFIER_UNNAMED),
)
NUMBERS = (
    fits("short-drafter", DRAFT, lambda: changed(draft(), max_position_embeddings=512), Code.POSITIONS_SHORT),
    fits("short-head", HEAD, lambda: changed(head(), max_position_embeddings=512), Code.POSITIONS_SHORT),
    fits("other-dtype", DRAFT, lambda: halves(draft()), Code.DTYPE_DIFFERS),
    ends("too-long", DRAFT, draft, Code.CONTEXT_BEYOND, of_verifier={"maxModelLen": 4096}),
    ends("heads-do-not-divide", DRAFT, draft, Code.HEADS_NOT_DIVISIBLE, of_verifier={"tensorParallelSize": 4}),
)
CASES = (
    fits(OWN, DRAFT, draft),
    fits("its-own-head", HEAD, head),
    Case("untrained-head", HEAD, noise, accepts=None),
    Case("no-model", "ngram", None, accepts=None),
    *VOCABULARY,
    *HIDDEN,
    *METHOD,
    *NUMBERS,
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def verdicts(places: Path) -> dict[str, Verdict]:
    found = {}
    for case in CASES:
        verifier = inspect(open_folder(case.verifier().write(places / f"{case.name}-verifier")))
        speculator = None
        if case.speculator is not None:
            speculator = inspect(open_folder(case.speculator().write(places / f"{case.name}-speculator")))
        found[case.name] = judge(verifier, speculator, case.spec, rules_of(case.spec))
    return found


@pytest.fixture(scope="module")
def answers(places: Path, verdicts: object, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    asked = [question(case, places) for case in CASES]
    variables = environment(tmp_path_factory.mktemp("vllm"))
    seed(Path(str(ENGINE)).parent.parent, variables["VLLM_CACHE_ROOT"])
    done = subprocess.run(
        [str(ENGINE), "-P", str(PROBE)],
        input=json.dumps(asked),
        env={"PATH": "/usr/bin:/bin", "VLLM_LOGGING_LEVEL": "WARNING", **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {one["name"]: one for one in json.loads(done.stdout.strip().splitlines()[-1])}


def question(case: Case, places: Path) -> dict[str, Any]:
    """The operator's command line, with the folders in the place of those of a pod."""
    args = engine_for(case.spec).container(resolve(case.spec), KTable.constant(K, SEQS)).args
    own = [argument.replace("/mnt/models/models/", f"{places}/") for argument in args]
    return {"name": case.name, "args": own, "prompts": PROMPTS, "tokens": TOKENS}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_the_one_expected(case: Case, verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts[case.name]
    assert {one.code for one in verdict.errors} == case.errors, verdict.findings
    assert case.others <= {one.code for one in verdict.findings}, verdict.findings


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_engine_does_what_the_verdict_says(case: Case, answers: Mapping[str, Mapping[str, Any]]) -> None:
    told = answers[case.name]
    assert ("problem" not in told) == case.serves, told
    if case.serves:
        share = told["accepted"] / max(told["drafted"], 1)
        assert told["drafted"] > 0, told
        unsure = case.accepts is None or (case.accepts and not TRAINED)
        assert unsure or (share > IN_VAIN) == case.accepts, told
        alone = answers[OWN]["texts"]
        assert told["texts"] == alone, "speculation changes no greedy text"


def test_an_error_is_what_keeps_a_pair_from_drafting() -> None:
    """Of the cases themselves: no Error where the engine serves with something accepted, one wherever it does not."""
    for case in CASES:
        assert bool(case.errors) == (not case.serves or case.accepts is False), case.name
