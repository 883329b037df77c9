"""Tell whether a speculator fits its verifier, as the operator would, before anything is deployed.

SPEC is a file with a SpeculativeDeployment (or what is below its spec). Or name the models: VERIFIER and SPECULATOR are
local folders or URIs (hf://organisation/model@revision, oci://, s3://, pvc://claim/path with --claims-at); what is no
folder and has the form ORGANISATION/MODEL is a model of the hub. Only configuration, tokenizer and tensor headers are
read. Without --method the speculator's files tell the method. Where SPEC leaves the speculator to the operator (auto:
true), one is picked as the operator would, and said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speculative_operator.cli import commands, terminal
from speculative_operator.cli.commands import FAILED, OK, USAGE, CommandError, UsageError
from speculative_operator.cli.pairs import Auto, add_catalogue, pick_and_read, rows_of
from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import SOURCES, DeploymentSpec, ModelSource, Scheme
from speculative_operator.engines.pairs import rules_of
from speculative_operator.pairing.catalogue import Catalogue
from speculative_operator.pairing.compared.method import modules
from speculative_operator.pairing.judge import judge
from speculative_operator.pairing.speculator_files import nature
from speculative_operator.pairing.verdict import Verdict, expectation, findings, to_json
from speculative_operator.weights.source import WeightsError

EPILOG = """examples:
  speculative check pair.yaml
  speculative check hf://Qwen/Qwen3-8B hf://RedHatAI/Qwen3-8B-speculator.eagle3 --k 3
  speculative check auto.yaml --catalogue our-pairs.csv
  speculative check ./llama ./speculator --method draft_model --tensor-parallel-size 4 -o json

exit status: 0 compatible (warnings included), 1 an Error was found, 2 something could not be read or wrong use"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    add = parser.add_argument
    add("first", metavar="SPEC|VERIFIER", help="file with the spec, or the verifier as folder or URI")
    add("speculator", metavar="SPECULATOR", nargs="?", default="", help="folder or URI; only after VERIFIER")
    add("--method", metavar="M", default="", help="method of drafting (default: what the speculator's files say)")
    add("--k", metavar="K", type=int, help="largest K (default: that of the API)")
    add("--engine", metavar="ENGINE", default="", help="engine type (vLLM)")
    add("--engine-version", metavar="V", default="", help="release of the engine (the default one)")
    add("--tensor-parallel-size", metavar="N", type=int, help="tensor parallel size of the verifier (1)")
    add("--max-model-len", metavar="N", type=int, help="longest request in tokens (the verifier's own limit)")
    add("--workload", metavar="W", default="", help="kind of text for the expected acceptance: Code, Chat, ... (Mixed)")
    add("--claims-at", metavar="DIR", default="", help="folder below which claims are mounted, for pvc://")
    add_catalogue(parser)
    terminal.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the models, judge the pair, print the verdict; returns the exit status. Raises CommandError."""
    try:
        spec, sides, auto = _read(arguments)
    except WeightsError as problem:
        if arguments.output != terminal.TEXT:
            print(terminal.format_document({"error": problem.to_json()}, arguments.output))
            return USAGE
        raise CommandError(str(problem), status=USAGE) from None
    verdict = judge_pair(spec, sides)
    names = _names(arguments, sides)
    if arguments.output != terminal.TEXT:
        told = to_json(verdict, {side: facts.pin for side, facts in sides.items()})
        for side, name in names.items():
            told["pins"][side]["model"] = name
        told |= auto.to_json() if auto is not None else {}
        print(terminal.format_document(told, arguments.output))
    else:
        for line in auto.lines if auto is not None else ():
            print(line)
        _show(spec, sides, names, verdict)
    return OK if verdict.compatible else FAILED


def judge_pair(spec: DeploymentSpec, sides: Mapping[str, ModelFacts]) -> Verdict:
    """The verdict on the facts of the two models, as the operator judges them."""
    return judge(sides["verifier"], sides.get("speculator"), spec, rules_of(spec))


def _read(arguments: argparse.Namespace) -> tuple[DeploymentSpec, dict[str, ModelFacts], Auto | None]:
    """The spec, the facts of its models by side, and the pick where the spec leaves it open. Raises WeightsError,
    CommandError."""
    from speculative_operator.cli.subject import spec_of

    if arguments.first.lower().endswith(commands.FILES) and not Path(arguments.first).is_dir():
        return _read_file(arguments)
    sides = {"verifier": _facts_of(arguments.first, "verifier", arguments)}
    if arguments.speculator:
        sides["speculator"] = _facts_of(arguments.speculator, "speculator", arguments)
    return spec_of(_body(arguments, sides)), sides, None


def _read_file(arguments: argparse.Namespace) -> tuple[DeploymentSpec, dict[str, ModelFacts], Auto | None]:
    from speculative_operator.cli.subject import spec_of

    named = ("method", "k", "engine", "engine_version", "tensor_parallel_size", "max_model_len", "workload")
    given = [f"--{name.replace('_', '-')}" for name in named if getattr(arguments, name)]
    if arguments.speculator or given:
        what = "SPECULATOR" if arguments.speculator else given[0]
        raise UsageError(
            f"{what} is given together with a file with a spec",
            "write it into the file, or give the models instead of the file",
        )
    spec = spec_of(commands.read_document(arguments.first, "SPEC"), arguments.first)
    return read_models(spec, rows_of(arguments), arguments.claims_at)


def read_models(
    spec: DeploymentSpec, rows: Catalogue, claims_at: str = ""
) -> tuple[DeploymentSpec, dict[str, ModelFacts], Auto | None]:
    """The spec with its speculator, the facts of its models by side, and the pick where the spec leaves it open. Raises
    WeightsError."""

    def read(source: ModelSource, side: str) -> ModelFacts:
        return _facts(source, side, claims_at)

    if spec.auto_speculator:
        auto = pick_and_read(spec, rows, read, judge_pair)
        return auto.spec, auto.sides, auto
    wanted = {"verifier": spec.verifier.source, "speculator": spec.speculator.source if spec.speculator else None}
    return spec, {side: read(source, side) for side, source in wanted.items() if source is not None}, None


def _body(arguments: argparse.Namespace, sides: Mapping[str, ModelFacts]) -> dict[str, Any]:
    """The spec that the arguments of the command line describe."""
    size = {"tensorParallelSize": arguments.tensor_parallel_size, "maxModelLen": arguments.max_model_len}
    drafts = {"mode": "Static", "numSpeculativeTokens": arguments.k} if arguments.k else {}
    engine = {"type": arguments.engine, "version": arguments.engine_version}
    method = arguments.method or _method(sides)
    speculator = {"method": method, "model": _uri(sides.get("speculator"), "-draft" if method == "draft_model" else "")}
    return {
        "verifier": _drop_unset({"model": _uri(sides["verifier"]), **size}),
        "speculator": _drop_unset(speculator),
        "speculation": _drop_unset({**drafts, "workload": arguments.workload}),
        "engine": _drop_unset(engine),
    }


def _drop_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in ("", None)}


def _uri(facts: ModelFacts | None, mark: str = "") -> str:
    """The model's URI; for a folder of this machine a URI that the API takes, and which nothing reads. `mark` tells two
    folders apart that hold the same files."""
    if facts is None:
        return ""
    folder = facts.pin.scheme == "pvc"
    return f"pvc://local/{facts.pin.key}{mark}" if folder else facts.pin.source.uri


def _method(sides: Mapping[str, ModelFacts]) -> str:
    if "speculator" in sides:
        found = nature(sides["speculator"]).method
        if found is None:
            raise UsageError("the speculator's files do not say its method", "give it with --method")
        return found.value
    if modules(sides["verifier"]) is None:
        raise UsageError(
            "SPECULATOR is missing, and the verifier has no modules that draft", "give SPECULATOR, or --method ngram"
        )
    return "mtp"


def _facts_of(text: str, side: str, arguments: argparse.Namespace) -> ModelFacts:
    """Facts of the model in a folder or at a URI. Raises WeightsError."""
    if Path(text).is_dir():
        return _facts(Path(text), side, arguments.claims_at)
    uri = f"hf://{text.removeprefix('hf://')}" if commands.OF_A_HUB.fullmatch(text) else text
    scheme, _, location = uri.partition("://")
    location, _, revision = location.partition("@")
    if scheme not in SOURCES or not location:
        known = ", ".join(f"{one.value}://" for one in SOURCES)
        remedy = f"give a folder, or a URI that starts with one of {known}"
        raise WeightsError(Reason.SOURCE_NOT_FOUND, f"{side} {text}: there is no such folder", remedy=remedy, side=side)
    return _facts(ModelSource(Scheme(scheme), location.rstrip("/"), revision), side, arguments.claims_at)


def _facts(place: Any, side: str, claims_at: str) -> ModelFacts:
    """Facts of the model in a folder or at a source. Raises WeightsError, which then names the side."""
    from speculative_operator.weights.inspect import inspect
    from speculative_operator.weights.local import open_folder
    from speculative_operator.weights.sources import open_source

    folder = isinstance(place, Path)
    try:
        return inspect(open_folder(place) if folder else open_source(place, Path(claims_at) if claims_at else None))
    except WeightsError as problem:
        problem.side = problem.side or side
        if folder:
            # inside, a folder is a claim that starts at the root
            problem.message = problem.message.replace(f"pvc:/{place.absolute().as_posix()}", str(place))
        raise


def _names(arguments: argparse.Namespace, sides: Mapping[str, ModelFacts]) -> dict[str, str]:
    """Side -> the model as people know it: a folder as it was given, else the URI."""
    given = {"verifier": arguments.first, "speculator": arguments.speculator}
    folders = {side: text for side, text in given.items() if text and Path(text).is_dir()}
    return {side: folders.get(side, facts.pin.source.uri) for side, facts in sides.items()}


def _show(spec: DeploymentSpec, sides: Mapping[str, ModelFacts], names: Mapping[str, str], verdict: Verdict) -> None:
    for side, facts in sides.items():
        print(f"{side:<12}{names[side]} at {facts.pin.resolved}")
    method = spec.speculator.method if spec.speculator else "none"
    print(f"{'engine':<12}{spec.engine.type} {spec.engine.version}, method {method}")
    print(f"{'kind':<12}{verdict.kind}: {verdict.kind.meaning}")
    if verdict.expected is not None:
        print(f"{'expected':<12}{expectation(verdict.expected)}")
    if verdict.findings:
        print()
        terminal.write_findings(sys.stdout, findings(verdict))
    errors, warnings = len(verdict.errors), len(verdict.warnings)
    said = "compatible" if verdict.compatible else "not compatible"
    print(f"\n{said}: {errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}")
