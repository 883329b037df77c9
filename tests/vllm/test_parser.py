"""Every rendered vLLM command line is parsed by vLLM 0.32 itself, and its graphs are those that the tuner is told.

One process of vLLM's interpreter answers for all cases; importing vLLM takes most of the time. Without an installed
vLLM (`make vllm`, or SPECULATIVE_VLLM_PYTHON) these tests are skipped; the emulator's parser takes the same command
lines everywhere (tests/golden/test_outlines.py).
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.golden.case import Case, every
from tests.unit.engines.building import spec

from realengine import paths
from realengine.serving import environment
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import AcceleratorRequest, DeploymentSpec, EngineType, Method
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.flags import FLAGS
from speculative_operator.engines.vllm.graphs import budget
from speculative_operator.engines.vllm.plan import Runner, plan

ENGINE = paths.python()
pytestmark = pytest.mark.skipif(ENGINE is None, reason=paths.MISSING)
PROBE = Path(__file__).with_name("parser_probe.py")
SECONDS = 300
PARSED = (0, 32, 0)
"""Command lines of other releases have other flags only in what they lack: 0.32 takes them all."""
CASES = {case.name: case for case in every() if case.spec.engine.type is EngineType.VLLM}
VARIABLES = {"LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "10.0.0.7"}
"""What the kubelet puts in the place of variables of a container."""
SWEEP = {
    f"{method}-{product or 'unknown'}-{seqs}-{top}": replace(
        spec(method, verifier={"max_num_seqs": seqs}, max_speculative_tokens=top),
        accelerator=AcceleratorRequest(product=product),
    )
    for method in (Method.EAGLE3, Method.DRAFT_MODEL, Method.NGRAM, Method.MEDUSA, Method.DFLASH)
    for product in ("", "H100-SXM", "B200-SXM")
    for seqs in (7, 64, 256, 600)
    for top in (1, 3, 5, 8, 15)
}
"""Specs whose graph sizes are compared beside those of the golden cases."""


def question(name: str, subject: DeploymentSpec, args: tuple[str, ...]) -> dict[str, Any]:
    planned = plan(subject)
    return {
        "name": name,
        "args": [re.sub(r"\$\((.*?)\)", lambda found: VARIABLES[found[1]], one) for one in args],
        "seqs": planned.max_batch,
        "budget": budget(subject, planned),
        "blackwell": subject.accelerator.product.startswith("B200"),
        "v1": planned.runner is Runner.V1,
    }


def widest(subject: DeploymentSpec) -> tuple[str, ...]:
    """The command line of a process that may use the largest K, which the knob space speaks of."""
    engine = engine_for(subject)
    knobs = engine.knobs(subject)
    return engine.container(resolve(subject), KTable.constant(max(knobs.ks), knobs.max_batch)).args


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    asked = [question(name, case.spec, case.container.args) for name, case in CASES.items()]
    asked += [question(f"widest {name}", case.spec, widest(case.spec)) for name, case in CASES.items()]
    asked += [question(name, subject, widest(subject)) for name, subject in SWEEP.items()]
    done = subprocess.run(
        [str(ENGINE), str(PROBE)],
        input=json.dumps(asked),
        env={"PATH": "/usr/bin:/bin", **environment(tmp_path_factory.mktemp("vllm"))},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {answer["name"]: answer for answer in json.loads(done.stdout.splitlines()[-1])}


def test_every_flag_of_the_parser_is_classed(answers: dict[str, dict[str, Any]]) -> None:
    """A new flag, or one that is gone, needs a row of engines/data/arguments.csv and a thought on its class."""
    current = {flag: row for flag, row in FLAGS.rows.items() if row["kind"] != "removed"}
    assert {flag: row["values"] for flag, row in current.items()} == answers[""]["flags"]
    assert {flag for flag, row in current.items() if row["kind"] == "owned"} == set(FLAGS.owned)
    assert set(FLAGS.rows) - set(current) <= {flag for flag in FLAGS.rows if flag not in answers[""]["flags"]}


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_vllm_takes_the_command_line(case: Case, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers[case.name]
    assert "problem" not in answer, answer["problem"]
    assert answer["model"] == case.container.args[0].removeprefix("--model=")
    assert answer["served"] == case.spec.verifier.served_name
    if case.knobs.actuator is Actuator.LIVE:
        assert set(answer["lookup"]) == set(case.knobs.ks), "the boot schedule holds every K"
    elif case.knobs.actuator is Actuator.TABLE:
        assert case.table is not None
        assert answer["lookup"] == case.table.dense()
    else:
        assert answer["lookup"] == []


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_graphs_of_the_cases(case: Case, answers: dict[str, dict[str, Any]]) -> None:
    """Where K comes with a table of a rollout, the sizes told are those of a process that may use every K."""
    comparable = case.knobs.capture_sizes and plan(case.spec).version >= PARSED
    if comparable and case.knobs.actuator is not Actuator.TABLE:
        assert tuple(answers[f"widest {case.name}"]["sizes"]) == case.knobs.capture_sizes


@pytest.mark.parametrize("name", SWEEP)
def test_graphs_of_many_sizes(name: str, answers: dict[str, dict[str, Any]]) -> None:
    assert "problem" not in answers[name], answers[name]["problem"]
    knobs = engine_for(SWEEP[name]).knobs(SWEEP[name])
    assert tuple(answers[name]["sizes"]) == knobs.capture_sizes
