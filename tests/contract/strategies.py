"""Random objects, right and wrong, near the edges of the constraints: for both forms of them at once."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.contract.objects import DRAFT, VERIFIER, specdep

from speculative_operator.domain.spec import Method


def _mostly(*right: Any, wrong: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """A right value, one time in some forty a wrong one: with many fields most objects would be refused otherwise."""
    return st.integers(0, 39).flatmap(lambda n: st.sampled_from(wrong if n == 39 and wrong else right))


URIS = _mostly(VERIFIER, DRAFT, DRAFT, "pvc://w/q", "oci://q.io/a/b:c", "hf://a", wrong=("a/b", "hf://", "s3://B"))
SIZES = _mostly(1, 1, 1, 2, 4, wrong=(0,))
WORDS = _mostly("main", "v1.0", wrong=("", "-x", "ä"))


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _present(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def schedules(draw: st.DrawFn) -> list[list[int]]:
    """Mostly contiguous bands, sometimes with one number changed."""
    rows, start = [], 1
    for _ in range(draw(st.integers(0, 4))):
        last = start + draw(st.integers(0, 60))
        rows.append([start, last, draw(st.integers(0, 5))])
        start = last + 1
    if rows and draw(st.integers(0, 3)) == 3:
        row, cell = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, 2))
        rows[row][cell] = draw(st.integers(0, 70))
    return rows


VERIFIERS = st.builds(
    lambda model, rest: {"model": model, **rest},
    URIS,
    _present(
        {
            "revision": WORDS,
            "tensorParallelSize": SIZES,
            "pipelineParallelSize": SIZES,
            "dataParallelSize": st.sampled_from([1, 1, 1, 2]),
            "maxNumSeqs": _mostly(1, 64, 65536, wrong=(0, 65537)),
            "servedName": WORDS,
            "maxNumBatchedTokens": _mostly(1, 8192, wrong=(0,)),
            "expertParallel": _mostly(True, False, wrong=("yes",)),
            "lora": _present({"maxAdapters": _mostly(1, 8, wrong=(0,)), "maxRank": _mostly(16, 64, wrong=(4097,))}),
        }
    ),
)
GIVEN = st.builds(
    lambda method, rest: {"method": method, **rest},
    _mostly(*map(str, Method), "draft_model", wrong=("eagle2",)),
    _present(
        {
            "model": URIS,
            "revision": WORDS,
            "tensorParallelSize": SIZES,
            "quantization": _mostly("fp8", "awq", wrong=("", "8 bit")),
            "parallelDrafting": st.booleans(),
            "heterogeneousVocabulary": _mostly(False, False, True),
            "options": _mostly({}, {"moe_backend": "triton"}, {"a": {"b": [1.5, None, True]}}, wrong=("x", [])),
            "promptLookup": _present({"min": st.integers(1, 4), "max": st.integers(1, 6)}),
        }
    ),
)
PICKED = _present(
    {
        "auto": _mostly(True, True, True, False, wrong=("yes",)),
        "method": _mostly("ngram"),
        "model": URIS,
        "revision": WORDS,
        "tensorParallelSize": SIZES,
        "parallelDrafting": st.booleans(),
    }
)
SPECULATORS = st.one_of(GIVEN, GIVEN, GIVEN, st.just({"auto": True}), PICKED)
SPECULATION = _present(
    {
        "mode": _mostly("Auto", "Static", "Static", "Static", "Disabled", wrong=("off",)),
        "numSpeculativeTokens": _mostly(1, 4, 8, 9, wrong=(0, -1)),
        "maxSpeculativeTokens": _mostly(8, 8, 5, 10, wrong=(0, 65)),
        "schedule": schedules(),
        "offPolicy": st.sampled_from(["Never", "KeepRunning", "Skip", "Remove"]),
        "adaptiveVerification": _mostly(False, True, wrong=("yes",)),
        "objective": _present({"tpotP99": _mostly("40ms", "1.5s", "10m", wrong=("0s", "10m1us", "1h", "5"))}),
    }
)
ENGINES = _present(
    {
        "type": _mostly("vLLM", "vLLM", "SGLang", wrong=("vllm",)),
        "version": _mostly("0.32.0", "0.33.0rc1", "0.11.0+rhai5", wrong=("1", "latest")),
        "image": _mostly("a/b:c", "r.io:5000/a/b@sha256:" + "a" * 64, wrong=("A", "a b", "a:b:c")),
        "args": st.lists(
            st.sampled_from(["-x", "--model", "--model-impl=auto", "-tp", "--max_num_seqs=3"]), max_size=2
        ),
        "env": st.lists(
            st.builds(
                lambda name, rest: {"name": name, **rest},
                _mostly("A", "B", "C", wrong=("SPECULATIVE_X", "9")),
                _present(
                    {
                        "value": WORDS,
                        "valueFrom": _present(
                            {
                                "fieldRef": st.just({"fieldPath": "x"}),
                                "resourceFieldRef": st.builds(
                                    lambda divisor: {"resource": "limits.cpu", "divisor": divisor},
                                    _mostly("1Gi", 1, "0.5Ti", "1m", wrong=(0, "1GB")),
                                ),
                            }
                        ),
                    }
                ),
            ),
            max_size=2,
        ),
    }
)
RESTS = _present(
    {
        "engine": ENGINES,
        "accelerator": _present(
            {"perReplica": _mostly(0, 1, 1, 2, 4), "hourlyCost": _mostly("5", "5.25", wrong=("5,2", ""))}
        ),
        "weights": _present(
            {
                "secretName": WORDS,
                "check": _mostly("Auto", "Disabled", wrong=("off",)),
                "cache": _present(
                    {
                        "claimName": WORDS,
                        "size": _mostly("1Gi", "500Gi", 5, wrong=("0", "x")),
                        "storageClassName": _mostly("fast", wrong=("F",)),
                    }
                ),
                "hubEndpoint": _mostly("https://hub.example.com", "http://a:1/b", wrong=("hub", "https://a@b")),
            }
        ),
        "replicas": _mostly(0, 1, 1000, wrong=(1001,)),
        "template": _present(
            {
                "metadata": _present(
                    {
                        "labels": st.dictionaries(WORDS, WORDS, max_size=2),
                        "annotations": st.dictionaries(WORDS, st.just("x"), max_size=1),
                    }
                )
            }
        ),
    }
)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """A SpeculativeDeployment whose fields have the right types and often the right values."""
    body = specdep()
    body["spec"] = {"verifier": draw(VERIFIERS), "speculation": draw(SPECULATION), **draw(RESTS)}
    speculator = draw(_maybe(SPECULATORS))
    if speculator is not None:
        body["spec"]["speculator"] = speculator
    return body
