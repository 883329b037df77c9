"""What runs on the machine with the accelerator: stages one after another, one JSON file. Started by `unpack`.

In nine minutes: what a launch costs, and EAGLE-3 on vLLM's V2 runner beside no speculator. With more (`--minutes 45`)
also the V1 runner, a draft model, adaptive verification, the tuner under a load that climbs, and tests of the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from acceleratorkit import engines, selftest, tuned
from acceleratorkit.bench import STEADY, WAVES, Arm, Bench, Group, Traffic
from acceleratorkit.engines import Engine, Setting
from acceleratorkit.stages import Record, Stage, run
from acceleratorkit.unpack import FORMAT, MANIFEST
from realengine import paths

PLAIN, KEEPS, SKIPS, DRAFT = "plain", "EAGLE-3, KeepRunning", "EAGLE-3, Skip", "draft model, Skip"
LOADS = (Traffic(WAVES, 4, 512), Traffic(WAVES, 128, 160), Traffic(STEADY, 128, 96), Traffic(STEADY, 4, 256))
"""The first two for all; the others for the longer run."""
TINY_LOADS = (Traffic(WAVES, 2, 96), Traffic(STEADY, 2, 96))
"""Where no accelerator is: long enough for K = 0 to become off."""
SPECULATION = Group(
    "speculation",
    (Engine(PLAIN), Engine(KEEPS, speculator="eagle3"), Engine(SKIPS, speculator="eagle3", skip=True)),
    (
        Arm(PLAIN, PLAIN), Arm("K = 0, KeepRunning", KEEPS, 0), Arm("K = 0, Skip", SKIPS, 0), Arm("K = 1", SKIPS, 1),
        Arm("K = 3", SKIPS, 3),
    ),
    LOADS,
)  # fmt: skip
V1, PIECEWISE, V1_DRAFT = "plain, V1", "plain, V1, piecewise graphs", "draft model, V1"
RUNNERS = Group(
    "runners", (Engine(PLAIN), Engine(V1, 1), Engine(PIECEWISE, 1, graphs="PIECEWISE")),
    (Arm(PLAIN, PLAIN), Arm(V1, V1), Arm(PIECEWISE, PIECEWISE)), LOADS[:2],
)  # fmt: skip
DRAFTS = Group(
    "draft model", (Engine(PLAIN), Engine(DRAFT, 2, "draft_model", skip=True), Engine(V1_DRAFT, 1, "draft_model")),
    (
        Arm(PLAIN, PLAIN), *(Arm(f"K = {k}, V2", DRAFT, k) for k in engines.KS),
        *(Arm(f"K = {k}, V1", V1_DRAFT, k) for k in engines.KS),
    ), LOADS[:2],
)  # fmt: skip
ADAPTIVE = "EAGLE-3, adaptive verification"
VERIFIED = Group(
    "adaptive verification",
    (Engine(PLAIN), Engine(SKIPS, speculator="eagle3", skip=True), Engine(ADAPTIVE, 2, "eagle3", True, adaptive=True)),
    (
        Arm(PLAIN, PLAIN), *(Arm(f"K = {k}", SKIPS, k) for k in (1, 3)),
        *(Arm(f"K = {k}, adaptive", ADAPTIVE, k) for k in (1, 3)),
    ), LOADS[:2],
)  # fmt: skip
TESTS = ("test_passes.py", "test_v2_runner.py", "test_off.py")
"""Of tests/vllm, those of what workers do otherwise; one that is not there is left out."""
CLIMB = (4, 128, 8)
NEEDED_BYTES = 74 * 10**9
"""Memory of an accelerator that three engines share."""
SHORT = 540.0


class Program:
    """The stages of one run."""

    def __init__(self, setting: Setting, record: Record) -> None:
        self._setting, self._record = setting, record

    def stages(self, seconds: float) -> list[Stage]:
        """In the order in which they settle most; the longer ones only where there is time for them."""
        bench, longer = Bench(partial(_serving, self._setting), self._record), seconds > SHORT
        measured = [(SPECULATION, 600.0, 60.0)] if longer else [(replace(SPECULATION, traffic=LOADS[:2]), 500.0, 60.0)]
        measured += [(RUNNERS, 300.0, 240.0), (DRAFTS, 420.0, 300.0), (VERIFIED, 360.0, 300.0)] if longer else []
        if not paths.on_accelerator():
            measured = [(replace(group, traffic=TINY_LOADS), most, least) for group, most, least in measured]
        return [
            Stage("launches", self.launches, 60.0),
            *(Stage(group.name, partial(bench.measure, group), most, least) for group, most, least in measured),
            *([Stage("tuner", self.climb, 300.0, 270.0), Stage("tests", self.tests, 600.0, 200.0)] if longer else []),
        ]

    def launches(self, until: float) -> None:
        """What a launch costs, and what the machine is."""
        ran = subprocess.run(
            [str(self._setting.python), "-m", "acceleratorkit.launches"], capture_output=True, text=True, check=False,
            timeout=max(1.0, until - time.monotonic()),
        )  # fmt: skip
        if ran.returncode:
            raise RuntimeError(ran.stderr[-2000:])
        for key, value in json.loads(ran.stdout.splitlines()[-1]).items():
            self._record.put(key, value)

    def climb(self, until: float) -> None:
        """The tuner beside an engine while the load climbs and falls, and beside it no speculator."""
        made = (Engine(PLAIN), Engine(SKIPS, speculator="eagle3", skip=True))
        left = until - time.monotonic()
        with engines.serving(made, self._setting, 0.5 * left) as (serve, failed):
            if failed:
                raise RuntimeError("; ".join(failed.values()))
            seconds = (until - time.monotonic() - 20.0) / len(CLIMB) / 1.3
            running, plain = serve[SKIPS], serve[PLAIN]
            tuner = tuned.Tuner(self._spec(), running.table, running.version)
            ports = (running.server.port, running.telemetry)
            phases = asyncio.run(tuned.climb(ports, CLIMB, seconds, seconds / 3, tuner))
            self._record.add("climb", {"arm": "tuned", "phases": [asdict(phase) for phase in phases]})
            phases = asyncio.run(tuned.climb((plain.server.port,), CLIMB, 0.3 * seconds, 0.2 * seconds))
            self._record.add("climb", {"arm": PLAIN, "phases": [asdict(phase) for phase in phases]})

    def _spec(self) -> dict[str, Any]:
        name = str(self._record.found.get("machine", {}).get("accelerator", ""))
        return {
            "verifier": {"model": "hf://Qwen/Qwen3-8B"},
            "speculator": {"method": "eagle3", "model": "hf://RedHatAI/Qwen3-8B-speculator.eagle3"},
            "accelerator": {"product": "H200" if "H200" in name else "H100-SXM"}, "speculation": {},
        }  # fmt: skip

    def tests(self, until: float) -> None:
        """The tests of the real engine that ask what workers do otherwise."""
        folder = paths.ROOT / "tests" / "vllm"
        there = [str(folder / name) for name in TESTS if (folder / name).exists()]
        argv = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-W", "default", *there]
        ran = subprocess.run(
            argv, capture_output=True, text=True, cwd=paths.ROOT, check=False,
            timeout=max(1.0, until - time.monotonic()),
        )  # fmt: skip
        self._record.put("tests", {"status": ran.returncode, "end": ran.stdout[-3000:]})


def _serving(setting: Setting, made: Sequence[Engine], within: float) -> Any:
    return engines.serving(made, setting, within)


def setting_of(options: argparse.Namespace) -> Setting:
    """How engines are started here. Raises RuntimeError where they cannot be."""
    scratch = options.home / "run"
    engines.make_models(scratch / "models", tiny=not paths.on_accelerator())
    python = paths.python()
    if python is None:
        raise RuntimeError(paths.MISSING)
    if not paths.on_accelerator():
        return Setting(python, scratch, seats=16)
    asked = ["nvidia-smi", "--query-gpu=memory.free,compute_cap", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(",")
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        raise RuntimeError(f"no accelerator: nvidia-smi does not tell of one ({error})") from None
    free = float(told[0]) * 2**20
    if free < NEEDED_BYTES:
        raise RuntimeError(
            f"{free / 1e9:.0f} GB of the accelerator's memory are free, {NEEDED_BYTES / 1e9:.0f} are needed for three "
            "engines: end what nvidia-smi lists, or take one with more memory"
        )
    return Setting(python, scratch, "FLASH_ATTN" if told[1].strip().startswith("9.") else "TRITON_ATTN")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="run.sh --", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="where the kit is unpacked")
    parser.add_argument("--out", type=Path, default=Path("accelerator.json"), help="the JSON that is written")
    parser.add_argument("--minutes", type=float, default=SHORT / 60.0, help="after which it ends (9; 45 for all of it)")
    parser.add_argument("--spent", type=float, default=0.0, help="seconds of them that are over")
    parser.add_argument("--self-test", action="store_true", help="stages and file with an engine of made-up figures")
    options = parser.parse_args(arguments)
    if options.self_test:
        return selftest.main(options.home)
    began = time.monotonic() - options.spent
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # engines end with it
    if (options.home / "bin" / "python").exists():
        os.environ.setdefault(paths.PYTHON_VARIABLE, str(options.home / "bin" / "python"))
        os.environ.setdefault(paths.DEVICE_VARIABLE, "cuda")
    record = Record(options.out.resolve(), {
        "format": FORMAT, "kit": kit(options.home), "seconds": round(60.0 * options.minutes),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    })  # fmt: skip
    record.save()
    try:
        program = Program(setting_of(options), record)
        run(program.stages(60.0 * options.minutes), record, began + 60.0 * options.minutes)
    except RuntimeError as error:
        print(f"the kit cannot run: {error}", file=sys.stderr)
        record.put("failed", str(error))
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {record.path} has what was found", file=sys.stderr)
    print(json.dumps(record.found))
    return 0 if all(stage["state"] == "done" for stage in record.found.get("stages", [{"state": ""}])) else 1


def kit(home: Path) -> dict[str, str]:
    """What the kit was built from; empty from a checkout."""
    try:
        told = json.loads((home / MANIFEST).read_text())
    except OSError:
        return {"vllm": paths.VLLM, "revision": ""}
    return {key: told[key] for key in ("vllm", "revision")}


if __name__ == "__main__":
    sys.exit(main())
