"""`make e2e-vllm`: installs the engine where it is missing, starts a cluster, plays, leaves a report and JSON."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from demo import hub
from demo.scene import OPERATOR_NAMESPACE, SceneError, install_operator
from devcluster.cluster import Cluster
from devcluster.errors import DevClusterError
from payloadbench import off
from payloadbench.measure import SECONDS, measure
from payloadbench.paired import MARGIN, MOST_ERROR, Ratio, Verdict, beside_twin
from payloadbench.server import ServerError
from realengine import paths, scene
from realengine.e2e.report import Report, markdown
from realengine.install import InstallError, installed
from speculative_operator.domain import names

PLAY_SECONDS = 3600.0
HUB = paths.ROOT / "build" / "hub-e2e-vllm"
"""What the hub serves; not below /tmp, of which every pod has its own."""
MOST_SHARE = 0.01
OFF_WIDTH = 8
PAYLOAD = "payload"
PARTS = ("retunes", "pairs", "tuning", PAYLOAD)
KEYS = (
    *("retunes", "requests", "identical_outputs", "engine_restarts", "decision_to_engine_seconds"),
    *("payload_throughput_ratio", "off_step_ratio", "best_static_gap_percent"),
)
"""Of the last line, beside `ok`."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="realengine.e2e", description=__doc__)
    parser.add_argument("--name", default="e2e-vllm", help="name of the cluster")
    parser.add_argument("--out", type=Path, default=paths.ROOT / "build" / "e2e-vllm", help="folder of the report")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the longest that a ratio is measured")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to play; all by default")
    return parser.parse_args()


def prepared(cluster: Cluster) -> None:
    """The operator from manifests/ as it is, which looks at pairs, the namespace, and a hub that has the models."""
    install_operator(cluster, check_pairs=True)
    cluster.kubectl("create", "namespace", scene.NAMESPACE)
    hub.serve(cluster, HUB, models=paths.models())


def play(cluster: Cluster, given: argparse.Namespace, report: Report) -> None:
    """Run the steps inside the cluster's network and take their report over."""
    inside = [part for part in given.parts if part != PAYLOAD]
    if not inside:
        return
    results = given.out / "results.json"
    results.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "realengine.e2e.play", "--out", str(results)]
    argv += ["--started", str(report.started), "--parts", *inside]
    folders = (paths.ROOT / "dev", paths.ROOT / "operator")
    running = cluster.inside(argv, env={"PYTHONPATH": ":".join(map(str, folders))})
    try:
        code = running.wait(PLAY_SECONDS)
    except subprocess.TimeoutExpired:
        running.terminate()
        running.wait(30)
        code = -1
    if results.exists():
        report.load(results)
    if not report.checks or code not in (0, 1):
        report.check("the run came to its end", False, f"exit code {code}")


class PayloadCost:
    """What the plug-in costs: the share of its own code, exactly; throughput with it and a constant table over
    throughput without; and steps while the speculator is left out over those of an engine without one.

    Engines take turns. The first two start while the rest is played; all are measured when the machine is theirs.
    """

    def __init__(self, python: Path, seconds: float) -> None:
        self._python, self._seconds = python, seconds
        self._quiet = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._lines: list[str] = []
        self._told = self._pool.submit(
            measure, python=python, seconds=seconds, report=self._lines.append, go=self._quiet.wait
        )

    def judge(self, report: Report) -> None:
        """Let the engines run. A ratio that noise leaves open is not passed."""
        report.begin("What the payload costs")
        self._quiet.set()
        told = self._told.result()
        for line in self._lines:
            report.say(f"  {line}")
        report.figures["payload_throughput_ratio"] = round(told["ratio"].value, 4)
        report.check(
            f"the payload's own code takes at most {MOST_SHARE:.0%} of the engine's thread",
            told["share"] <= MOST_SHARE,
            f"{told['share']:.2%}; {told['microseconds_per_step']} us a step over {told['steps']} steps",
        )
        check_equal(report, "throughput with the payload", "without", told["ratio"])
        report.say(f"  by processor time {told['processor']}")
        same = told["identical"] and not told["failed"]
        report.check("the same texts with and without it, no request failed", same, f"{told['failed']} failed")
        self._judge_off(report)

    def _judge_off(self, report: Report) -> None:
        report.begin("What a speculator costs that is left out")
        kinds, say = (off.PLAIN, off.OFF, off.TWIN), lambda line: report.say(f"  {line}")
        told = off.measure(self._python, (OFF_WIDTH,), self._seconds, kinds, say)
        ratios = told["ratios"][OFF_WIDTH]
        report.figures["off_step_ratio"] = round(ratios[off.OFF].value, 4)
        check_equal(report, "steps per second while off", "without a speculator", ratios[off.OFF], ratios[off.TWIN])
        report.check("the same texts from all engines", told["same_texts"], f"{ratios[off.OFF].pairs} rounds")

    def end(self) -> None:
        """Whatever happened: no engine outlives this."""
        self._quiet.set()
        self._pool.shutdown()


def check_equal(report: Report, what: str, other: str, ratio: Ratio, twin: Ratio | None = None) -> None:
    """One assertion: the lower bound is within the margin, of a ratio that the runs could resolve; with `twin`, the
    ratio of the other engine's own copy, only where that is within it on both sides."""
    verdict = ratio.verdict() if twin is None else beside_twin(ratio, twin)
    copies = f"; its own copy {twin}" if twin is not None else ""
    report.check(
        f"{what} over that {other} is at least {1 - MARGIN:g}, with a standard error of at most {MOST_ERROR:g}",
        verdict is Verdict.EQUAL,
        f"{ratio}, at least {ratio.low:.4f}{copies}: {verdict}",
    )


def keep_logs(cluster: Cluster, out: Path) -> None:
    """Logs of operator and engine beside the report: what one wants to see when an assertion failed."""
    for name, namespace, selector in (
        ("operator", OPERATOR_NAMESPACE, f"app.kubernetes.io/name={names.OPERATOR}"),
        ("engine", scene.NAMESPACE, f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"),
    ):
        logs = cluster.kubectl("logs", "-n", namespace, "-l", selector, "--tail=-1", "--prefix", check=False)
        (out / f"{name}.log").write_text(logs.stdout + logs.stderr)
    found = cluster.kubectl("get", "specdep,pods", "-A", "-o", "json", check=False)
    (out / "objects.json").write_text(found.stdout)


def summary(report: Report) -> dict[str, Any]:
    """The last line."""
    return {"ok": report.ok, **{key: report.figures.get(key) for key in KEYS}}


def run(given: argparse.Namespace) -> int:
    report = Report()
    started = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    python = installed(report.say)
    cost = PayloadCost(python, given.seconds) if PAYLOAD in given.parts else None
    try:
        report.say("starting a cluster")
        with Cluster.start(scene.options(given.name, python), report.say) as cluster:
            prepared(cluster)
            try:
                play(cluster, given, report)
            finally:
                report.say("keeping logs")
                keep_logs(cluster, given.out)
                report.say("ending the cluster")
        if cost:
            cost.judge(report)
    finally:
        if cost:
            cost.end()
    told = summary(report)
    head = [f"vLLM {paths.VLLM} on CPUs, {time.monotonic() - started:.0f} s from the start to the end."]
    (given.out / "report.md").write_text(markdown(report, told, head))
    report.say(f"report: {given.out / 'report.md'}")
    print(json.dumps(told), flush=True)
    return 0 if report.ok else 1


def main() -> int:
    # a terminated run unwinds like an interrupted one, so that the cluster ends with it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(options())
    except KeyboardInterrupt:
        print("interrupted: nothing is left behind", file=sys.stderr)
        return 130
    except (InstallError, DevClusterError, SceneError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        print(json.dumps({"ok": False, "error": str(error).splitlines()[0]}), flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
