"""What the adapters of SGLang and TensorRT-LLM render, the emulators start; what these expose, the adapters read.

Adapter and emulator were written apart, from the engines' sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.emulator.dialects import QUIET, DialectRun
from tests.unit.engines.kinds import of

from speculative_lab.emulator.dialect import Parser, Program
from speculative_lab.emulator.sglang import parse as parse_sglang
from speculative_lab.emulator.tensorrt_llm import DIALECT as TENSORRT_LLM
from speculative_lab.emulator.tensorrt_llm import parse as parse_tensorrt_llm
from speculative_operator.domain import names
from speculative_operator.domain.observation import PodWindow, Series
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import EngineContainer
from speculative_operator.engines.registry import engine_for

PARSERS: dict[EngineType, Parser] = {
    EngineType.SGLANG: parse_sglang,
    EngineType.TENSORRT_LLM: parse_tensorrt_llm,
}
TABLE = KTable.from_rows([[1, 4, 4], [5, 256, 1]])


def deployments() -> list[DeploymentSpec]:
    """Every method that an engine does not refuse, in every mode."""
    found = []
    for kind in PARSERS:
        for method in (None, *Method):
            for mode in (Mode.AUTO, Mode.STATIC, Mode.DISABLED):
                subject = of(kind, method, mode=mode, num_speculative_tokens=3)
                if not engine_for(subject).refusals(subject):
                    found.append(subject)
    return found


def title(subject: DeploymentSpec) -> str:
    method = subject.speculator.method if subject.speculator else "none"
    return f"{subject.engine.type}-{subject.engine.version}-{method}-{subject.speculation.mode}"


def started(subject: DeploymentSpec, table: KTable, folder: Path) -> tuple[Program, EngineContainer]:
    """The program of the container's arguments, its files where the pod has them."""
    container = engine_for(subject).container(resolve(subject), table)
    for name, text in container.files.items():
        (folder / name).write_text(text)
    words = [word.replace(names.CONFIG_MOUNT, str(folder)) for word in container.args]
    variables = {entry["name"]: entry.get("value", "") for entry in container.env}
    return PARSERS[subject.engine.type](words, variables, QUIET), container


SERVED = deployments()


def test_there_is_something_to_try() -> None:
    assert len(SERVED) > 40
    assert {subject.engine.type for subject in SERVED} == set(PARSERS)


@pytest.mark.parametrize("subject", SERVED, ids=title)
def test_every_rendered_command_line_starts(subject: DeploymentSpec, tmp_path: Path) -> None:
    """It listens where the pod is probed, exposes metrics, and drafts where the adapter says so."""
    knobs = engine_for(subject).knobs(subject)
    program, _ = started(subject, KTable.constant(max(knobs.ks), knobs.max_batch), tmp_path)
    assert (program.server.host, program.server.port) == ("0.0.0.0", names.SERVING_PORT)
    assert program.server.metrics
    assert (program.engine.speculative is not None) == (knobs.actuator is not Actuator.NONE)
    assert program.engine.max_num_seqs == knobs.max_batch
    if knobs.actuator is not Actuator.NONE:
        assert program.engine.max_k == max(knobs.ks)


@pytest.mark.parametrize("kind", [EngineType.SGLANG, EngineType.TENSORRT_LLM])
def test_a_table_is_what_the_engine_does(kind: EngineType, tmp_path: Path) -> None:
    """K by the number of requests, through the file; SGLang pads batches to the sizes of its graphs."""
    subject = of(kind, Method.EAGLE3)
    engine = engine_for(subject)
    assert engine.knobs(subject).actuator is Actuator.TABLE
    program, _ = started(subject, TABLE, tmp_path)
    assert program.lengths is not None
    assert [program.lengths(batch, batch) for batch in (1, 4, 5, 256)] == [4, 4, 1, 1]


@pytest.mark.parametrize("kind", [EngineType.SGLANG, EngineType.TENSORRT_LLM])
@pytest.mark.parametrize("streams", [True, False])
def test_the_reader_sees_what_happened(kind: EngineType, streams: bool, tmp_path: Path) -> None:
    """Within what the engine's metrics can tell: they lag, and SGLang's steps are derived."""
    subject = of(kind, Method.EAGLE3)
    program, _ = started(subject, KTable.constant(3, 256), tmp_path)
    run = dialect_run(kind, program)
    feed(run, seconds=8.0, streams=streams)
    first, marks = scraped(run, 1000.0), marked(run)
    feed(run, seconds=15.0, streams=streams)
    second, after = scraped(run, 1010.0), marked(run)
    window = engine_for(subject).read(joined(first, second), {"pod-0"}, {"pod-0": 1000.0}, 1011.0, 60.0)["pod-0"]
    assert isinstance(window, PodWindow), window
    truth = {name: after[name] - marks[name] for name in marks}
    assert window.generated_tokens == pytest.approx(truth["tokens"], rel=0.12)
    assert window.steps == pytest.approx(truth["steps"], rel=0.12)
    assert window.batch == pytest.approx(16, rel=0.12)
    assert window.mean_k == pytest.approx(3.0, abs=0.05)
    assert window.tokens_per_step == pytest.approx(truth["gained"] / truth["decoded"], rel=0.05)
    assert window.step_period == pytest.approx(truth["seconds"] / truth["steps"], rel=0.1)


def test_without_a_speculator_the_readers_say_so(tmp_path: Path) -> None:
    for kind in (EngineType.SGLANG, EngineType.TENSORRT_LLM):
        subject = of(kind, None)
        run = dialect_run(kind, started(subject, KTable.constant(0, 256), tmp_path)[0])
        feed(run, seconds=4.0, streams=False)
        first = scraped(run, 1000.0)
        feed(run, seconds=6.0, streams=False)
        window = engine_for(subject).read(joined(first, scraped(run, 1010.0)), {"pod-0"}, {}, 1011.0, 60.0)["pod-0"]
        assert isinstance(window, PodWindow), window
        assert window.drafts is None
        assert window.tokens_per_step == pytest.approx(1.0, abs=0.02)


def dialect_run(kind: EngineType, program: Program) -> DialectRun:
    return DialectRun(program, TENSORRT_LLM if kind is EngineType.TENSORRT_LLM else None)


def feed(run: DialectRun, seconds: float, streams: bool) -> None:
    """16 requests in flight for that long."""
    end = run.now + seconds
    while run.now < end:
        while run.core.running + len(run.core.waiting) < 16:
            run.add(prompt=64, output=100, streams=streams)
        run.step()


def marked(run: DialectRun) -> dict[str, float]:
    """Totals of everything so far, from the steps themselves."""
    decoding = [result for result in run.results if result.decoded]
    return {
        "tokens": sum(result.generated_tokens for result in run.results),
        "steps": len(decoding),
        "decoded": sum(result.decoded for result in decoding),
        "gained": sum(int(result.gained[: result.decoded].sum()) for result in decoding),
        "seconds": sum(result.seconds for result in decoding),
    }


def scraped(run: DialectRun, when: float) -> list[Series]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(run.metrics)
    extra = {"pod": "pod-0", "namespace": "models"}
    return [
        Series(sample.name, {**sample.labels, **extra}, ((when, sample.value),))
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    ]


def joined(first: Sequence[Series], second: Sequence[Series]) -> list[Series]:
    """The series of two scrapes; one that is new in the second has one sample."""
    before = {(series.name, tuple(sorted(series.labels.items()))): series.samples for series in first}
    return [
        replace(series, samples=(*before.get((series.name, tuple(sorted(series.labels.items()))), ()), *series.samples))
        for series in second
    ]
