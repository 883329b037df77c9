from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engines.building import spec
from tests.unit.failing import failing

from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    DeploymentSpec,
    EngineType,
    Method,
    Mode,
    ModelSource,
    Scheme,
)
from speculative_operator.engines.matrix.rows import rows_of
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.flags import FLAGS

S3 = ModelSource(Scheme.S3, "bucket/m")
REFUSED = ("removed", "pod", "tls")
"""Kinds of rows that are always refused."""

# Further ones, for each engine: tests/contract/refused_engines.py.
WRONG: list[tuple[dict[str, Any], str, str, tuple[str, ...]]] = [
    ({"version": "nightly"}, "spec.engine.version", "UnsupportedByEngine", ("'nightly'", "0.32.0")),
    ({"source": S3}, "spec.speculator.model", "UnsupportedSource", ("s3://bucket/m", "pvc://")),
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


def test_a_flag_of_a_former_release_or_that_voids_the_pod_is_refused_with_what_to_do_instead() -> None:
    assert failing(refused_with_its_remedy, [row for row in rows_of("arguments") if row["kind"] in REFUSED]) == []


def refused_with_its_remedy(row: dict[str, str]) -> None:
    other = "--" + row["flag"][2:].replace("-", "_") if row["engine"] == "vLLM" else row["flag"]
    for argument in (row["flag"], f"{row['flag']}=1", other):
        subject = of_engine(row["engine"], argument, "1")
        told = [one.message for one in engine_for(subject).refusals(subject)]
        assert any(argument in message and message.endswith(row["says"]) for message in told), told


def of_engine(engine: str, *args: str) -> DeploymentSpec:
    """A spec of `engine` in its default release, with a method that each engine has."""
    made = EngineType(engine)
    subject = spec(Method.NGRAM, source=None, args=args, version=DEFAULT_VERSIONS[made])
    return replace(subject, engine=replace(subject.engine, type=made))


def test_a_certificate_is_taken_where_the_template_has_probes_follow_it() -> None:
    subject = spec(args=("--ssl-certfile", "/tls/tls.crt", "--ssl-keyfile", "/tls/tls.key"))
    assert len(engine_for(subject).refusals(subject)) == 2
    probe = {"httpGet": {"path": "/health", "port": "http", "scheme": "HTTPS"}}
    template = {"spec": {"containers": [{"name": "engine", "readinessProbe": probe}]}}
    assert engine_for(subject).refusals(replace(subject, template=template)) == ()


def test_a_release_that_still_has_a_flag_is_served_with_it() -> None:
    for version, refused in (("0.31.0", 0), ("0.32.0", 1), ("0.33.1", 1)):
        subject = spec(args=("--disable-log-requests",), version=version)
        assert len(engine_for(subject).refusals(subject)) == refused, version


@pytest.mark.parametrize(
    ("args", "messages"),
    [
        (
            ("--host 127.0.0.1", "--port 6379"),
            (
                'has "--host 127.0.0.1" in one item; write two items or --host=127.0.0.1',
                "repeats --host ('--host 127.0.0.1'): the operator always sets it; remove it from engine.args",
                'has "--port 6379" in one item; write two items or --port=6379',
                "repeats --port ('--port 6379'): the operator always sets it; remove it from engine.args",
            ),
        ),
        (
            ("--max-model-len 4096",),
            (
                'has "--max-model-len 4096" in one item; write two items or --max-model-len=4096',
                "repeats --max-model-len ('--max-model-len 4096'): set spec.verifier.maxModelLen instead; remove it "
                "from engine.args",
            ),
        ),
        (
            ("--enable-prefix-caching ",),
            ('has "--enable-prefix-caching " in one item; write --enable-prefix-caching without the blank',),
        ),
        (
            ('--hf-overrides {"a": 1}',),
            ('has "--hf-overrides {"a": 1}" in one item; write two items or --hf-overrides={"a": 1}',),
        ),
        (("--enforce-eager", "true"), ("has 'true' after --enforce-eager, which takes no value: remove it",)),
        (("--enforce-eager=true",), ("has 'true' after --enforce-eager, which takes no value: remove it",)),
        (("--seed", "--enforce-eager"), ("has --seed without a value: write it as the next item",)),
        (("--seed", "1", "2"), ("has '2' after --seed, which takes one value: remove it",)),
        *(
            (args, ())
            for args in (
                ("--hf-overrides", '{"a": 1, "b": 2}'),
                ('--hf-overrides={"a": 1}',),
                ("--chat-template", "- answer in one line"),
                ("--seed", "-1"),
                ("--compilation-config.mode", "3"),
                ("--compilation_config.mode=3", "-O3"),
                ("--lora-modules", "a=/a", "b=/b"),
                ("--no-enable-prefix-caching",),
            )
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_items_are_read_as_the_engine_will(args: tuple[str, ...], messages: tuple[str, ...]) -> None:
    subject = spec(args=args)
    assert tuple(one.message for one in engine_for(subject).refusals(subject)) == tuple(
        f"spec.engine.args {message}" for message in messages
    )


@pytest.mark.parametrize(
    ("argument", "flag"),
    [
        *((short, long) for short, long in FLAGS.aliases.items()),
        ("-n2", "--nnodes"),
        ("-t", "--tensor-parallel-size"),
        ("--device-memory-util=0.9", "--gpu-memory-utilization"),
        ("--no-enable-lora", "--enable-lora"),
        ("--ssl_certf", "--ssl-certfile"),
        ("--ssl-cert", "--ssl-cert"),
        ("--no-enable-prefix-caching", "--no-enable-prefix-caching"),
        ("-1", ""),
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
        {"args": ("--enable-prefix-caching", "--block-size", "16", "--api-key=x")},
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
