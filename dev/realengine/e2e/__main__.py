"""`make e2e-vllm`: installs the engine where it is missing, starts a cluster, plays, leaves a report and JSON."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from demo import hub
from demo.scene import OPERATOR_NAMESPACE, SceneError, install_operator
from devcluster.cluster import Cluster
from devcluster.errors import DevClusterError
from payloadbench import off
from payloadbench.measure import SECONDS, measure
from payloadbench.paired import MARGIN, MOST_ERROR, Ratio, Verdict, beside_copies
from payloadbench.server import ServerError
from realengine import guidellm, paths, scene
from realengine.e2e.report import Report, markdown
from realengine.install import InstallError, installed
from speculative_operator.domain import names

PLAY_SECONDS = 3600.0
HUB = paths.ROOT / "build" / "hub-e2e-vllm"
"""What the hub serves; not below /tmp, of which every pod has its own."""
OFF_WIDTH = 8
COMMANDS, PAYLOAD = "commands", "payload"
PARTS = ("retunes", "pairs", "tuning", COMMANDS, PAYLOAD)
KEYS = (
    *("retunes", "requests", "identical_outputs", "engine_restarts", "decision_to_engine_seconds"),
    *("payload_step_ratio", "off_step_ratio", "best_static_gap_percent"),
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


def judge_payload(python: Path, seconds: float, report: Report) -> None:
    """What a step costs with the payload, and what a speculator costs that is left out. A ratio that noise leaves open
    is not passed."""

    def say(line: str) -> None:
        report.say(f"  {line}")

    report.begin("What the payload costs")
    cost = measure(python, seconds, say)
    report.figures["payload_step_ratio"] = round(cost.ratio.value, 4)
    check_equal(report, "speed of a step with the payload", "without", cost.ratio)
    report.check("no request failed", not cost.failed, f"{cost.failed} failed")
    report.begin("What a speculator costs that is left out")
    told = off.measure(python, (OFF_WIDTH,), 2 * seconds, (off.PLAIN, off.OFF, off.TWIN), say)
    ratios = told["ratios"][OFF_WIDTH]
    report.figures["off_step_ratio"] = round(ratios[off.OFF].value, 4)
    check_equal(report, "steps per second while off", "without a speculator", ratios[off.OFF], ratios[off.TWIN])
    report.check("the same texts from all engines", told["same_texts"], f"{ratios[off.OFF].pairs} rounds")


def check_equal(report: Report, what: str, other: str, ratio: Ratio, copies: Ratio | None = None) -> None:
    """One assertion: the lower bound is within the margin, of a ratio that the runs could resolve; with `copies`, the
    ratio of the two equal engines that it is to, only where these are within the margin of one another."""
    verdict = ratio.verdict() if copies is None else beside_copies(ratio, copies)
    beside = f"; two engines {other} {copies}" if copies is not None else ""
    report.check(
        f"{what} over that {other} is at least {1 - MARGIN:g}, with a standard error of at most {MOST_ERROR:g}",
        verdict is Verdict.EQUAL,
        f"{ratio}, at least {ratio.low:.4f}{beside}: {verdict}",
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
    if given.parts != [PAYLOAD]:
        report.say("starting a cluster")
        generator = guidellm.image() if COMMANDS in given.parts else None
        with Cluster.start(scene.options(given.name, python, generator), report.say) as cluster:
            prepared(cluster)
            try:
                play(cluster, given, report)
            finally:
                report.say("keeping logs")
                keep_logs(cluster, given.out)
                report.say("ending the cluster")
    if PAYLOAD in given.parts:
        judge_payload(python, given.seconds, report)
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
