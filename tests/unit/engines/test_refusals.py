from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engines.building import spec

from speculative_operator.domain.spec import Method, Mode, ModelSource, Scheme
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.flags import FLAGS

S3 = ModelSource(Scheme.S3, "bucket/m")

# Further ones, for each engine: tests/contract/refused_engines.py.
WRONG: list[tuple[dict[str, Any], str, str, tuple[str, ...]]] = [
    ({"version": "nightly"}, "spec.engine.version", "UnsupportedByEngine", ("'nightly'", "0.32.0")),
    ({"source": S3}, "spec.speculator.model", "UnsupportedSource", ("s3://bucket/m", "pvc://")),
    ({"method": Method.MEDUSA, "source": None}, "spec.speculator.model", "SpecInvalid", ("medusa",)),
    ({"args": ("serve",)}, "spec.engine.args", "SpecInvalid", ("'serve'", "spec.verifier.model")),
    ({"args": ("--disable-log-stats",)}, "spec.engine.args", "SpecInvalid", ("--disable-log-stats", "mode: Static")),
    (
        {"env": ({"name": "PYTHONPATH", "valueFrom": {}},)},
        "spec.engine.env",
        "SpecInvalid",
        ("PYTHONPATH", "plain value"),
    ),
]


@pytest.mark.parametrize(("fields", "field", "reason", "parts"), WRONG, ids=lambda value: str(value)[:60])
def test_wrong_specs_are_refused_with_field_value_and_remedy(
    fields: dict[str, Any], field: str, reason: str, parts: tuple[str, ...]
) -> None:
    subject = spec(**fields)
    (refusal,) = engine_for(subject).refusals(subject)
    assert (refusal.field, refusal.reason) == (field, reason)
    for part in parts:
        assert part in refusal.message


@pytest.mark.parametrize("flag", FLAGS.owned)
def test_a_flag_of_ours_is_refused_in_any_spelling(flag: str) -> None:
    other = "--" + flag[2:].replace("-", "_")
    for argument in (flag, f"{flag}=1", other, f"{other}=1"):
        subject = spec(args=(argument, "1"))
        (refusal,) = engine_for(subject).refusals(subject)
        assert argument in refusal.message
        assert flag in refusal.message
        assert "remove it from engine.args" in refusal.message


@pytest.mark.parametrize("flag", FLAGS.removed)
def test_a_flag_of_a_former_release_is_refused_with_the_field_to_use(flag: str) -> None:
    other = "--" + flag[2:].replace("-", "_")
    for argument in (flag, f"{flag}=1", other):
        subject = spec(args=(argument, "1"))
        (refusal,) = engine_for(subject).refusals(subject)
        assert refusal.message == (
            f"spec.engine.args has {argument!r}, which vLLM no longer has: {FLAGS.removed[flag]}"
        )


@pytest.mark.parametrize(
    ("argument", "flag"),
    [
        *((short, long) for short, long in FLAGS.aliases.items()),
        ("-tp2", "--tensor-parallel-size"),
        ("-tp=2", "--tensor-parallel-size"),
        ("--speculative-config.method", "--speculative-config"),
        ("--max-num-se", "--max-num-seqs"),
        ("--spec-me=x", "--spec-method"),
        ("--speculative", "--speculative-config"),
        ("--disable_log_st", "--disable-log-stats"),
        ("-sc2", "--speculative-config"),
        ("--max", "--max"),
        ("--enable-lora", "--enable-lora"),
        ("--model-impl", "--model-impl"),
        ("-O3", "-O3"),
        ("value", ""),
        ("--", "--"),
    ],
)
def test_flags_are_recognised_as_the_engine_would(argument: str, flag: str) -> None:
    assert FLAGS.name(argument) == flag


@pytest.mark.parametrize(
    "fields",
    [
        {"args": ("--enable-prefix-caching", "--swap-space", "4", "--api-key=x")},
        {"args": ("--disable-log-stats",), "mode": Mode.STATIC, "num_speculative_tokens": 3},
        {"method": Method.DRAFT_MODEL, "version": "0.13.0", "mode": Mode.DISABLED},
        {"method": Method.DRAFT_MODEL, "draft_tp": 4, "verifier": {"tensor_parallel_size": 4}},
        {"draft_tp": 1, "verifier": {"tensor_parallel_size": 4}},
        {"per_replica": 0},
        {"version": "0.99.0"},
        {"env": ({"name": "PYTHONPATH", "value": "/x"},)},
    ],
    ids=str,
)
def test_right_specs_are_taken(fields: dict[str, Any]) -> None:
    subject = spec(**fields)
    assert engine_for(subject).refusals(subject) == ()


def test_all_problems_are_told_at_once() -> None:
    subject = spec(source=S3, version="0.10.2", args=("--port", "1"))
    assert [refusal.field for refusal in engine_for(subject).refusals(subject)] == [
        "spec.speculator.model",
        "spec.engine.version",
        "spec.engine.args",
    ]
