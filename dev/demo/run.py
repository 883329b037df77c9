"""One run of the demo, from an empty machine to the report. Called by `__main__`; ends everything it started."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from demo import engines, hub, pairs, report
from demo.arrivals import TRACE, Profile, warp
from demo.figures import (
    Phases,
    adoptions,
    asked_ks,
    compared_blocks,
    compared_variants,
    decision_row,
    lost_seconds,
    most_concurrent,
    spread,
    table_latencies,
    tables,
    unix,
)
from demo.scene import (
    AUTO,
    NAMESPACE,
    ROOT,
    SceneError,
    apply,
    have_operator_scraped,
    install_operator,
    options,
    variants,
    wait_ready,
)
from demo.screen import Scene, Screen, comparison, save_picture
from demo.sender import Sender
from demo.verdict import (
    ADOPTION_SECONDS,
    DECISION_SECONDS,
    Stretches,
    checks_of_k,
    checks_of_phases,
    phases_of,
)
from demo.watch import Timeline, Watcher
from devcluster.cluster import Cluster
from figures import status_view
from monitoring.shown import Shown, shown
from speculative_lab.plant import traces
from speculative_operator.api.convert import to_domain
from speculative_operator.cli import terminal
from speculative_operator.comparing.verdict import Comparison
from speculative_operator.engines.registry import engine_for

ENGINES = ROOT / "build" / "engines"
"""Where the commands of the other engines' images are laid; the node sees the whole repository."""
REQUEST_TIMEOUT_SECONDS = 300.0
MOMENTS = 24
"""How often a replay records what `speculative status` reads."""
FEW_SECONDS = 600.0
"""For which a few requests go on at most, while the rest is shown, so that there is more to compare."""
DRAIN_SECONDS = 120.0
"""Longest wait for the last answers after the last arrival."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    name: str = "demo"
    seconds: float = 300.0
    low: float = 3.0
    peak: float = 16.0
    max_context: int = 1024
    out: Path = ROOT / "build" / "demo"
    keep: bool = False
    alone: bool = False
    picture: Path | None = None
    record: Path | None = None
    """Where to save the live view at the top of the load, and what `speculative status` reads at MOMENTS moments."""


@dataclass
class Played:
    """What one replay left: when, what was seen, what the clients got."""

    started: float
    ended: float
    timeline: Timeline
    records: list[dict[str, Any]]
    status: dict[str, Any]
    restarts: int
    latencies: list[float]
    adopted: dict[int, float]
    decisions: list[dict[str, Any]]
    """Every decision seen, oldest first: status keeps only the last ten."""
    lost: float
    """Seconds for which the tuned emulator was late by more than it makes up for."""
    pods: dict[str, str]
    """Serving pod -> its object."""
    compared: dict[str, Comparison] = field(default_factory=dict)
    """Role -> the tuned variant against it, at the end."""


class Demo:
    """Holds the cluster and the load generator, so that whatever happens both can be ended."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings = settings
        self.console = console
        self.cluster: Cluster | None = None
        self._load: Sender | None = None
        self._variants = variants()[: 1 if settings.alone else None]
        self._decisions: dict[str, dict[str, Any]] = {}
        self._top: Scene | None = None
        """The view at the top of the load, where it is to be saved."""

    def end(self) -> None:
        """End the load generator and the cluster; harmless when there is none."""
        if self._load is not None:
            self._load.end()
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None

    def play(self, started: float) -> dict[str, Any]:
        """The whole run; the summary that is printed last."""
        self.settings.out.mkdir(parents=True, exist_ok=True)
        watcher = self._set_up()
        setup = time.monotonic() - started
        ready = self._serve()
        played = self._replay(watcher)
        dashboards = self._dashboards(played.started)
        self._load = few = self._send("few", Profile(((0.0, self.settings.low), (FEW_SECONDS, self.settings.low))))
        others = self._others()
        paired = self._pairs()
        few.finish(DRAIN_SECONDS)
        sights = self._timeline(watcher, played.pods, played.started, time.time()).sights
        played.compared = compared_variants(sights, to_domain(self._variants[0].manifest).accelerator)
        summary = self._summary(played, setup, ready, dashboards, others, paired)
        for role, found in played.compared.items():
            self.console.print(comparison(role, found))
        self._report(played, summary, others, paired)
        return summary

    def _say(self, text: str) -> None:
        # whole lines: a terminal wraps them itself, and a log is searched by line
        self.console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {text}", highlight=False, soft_wrap=True)

    def _set_up(self) -> Watcher:
        self._say("starting a Kubernetes cluster on this machine")
        begin = Cluster.start_detached if self.settings.keep else Cluster.start
        self.cluster = begin(options(self.settings.name, {**engines.images(ENGINES), **hub.images()}), self._say)
        self._say("installing the operator: kubectl apply -f manifests/install.yaml")
        install_operator(self.cluster, check_pairs=True)
        have_operator_scraped(self.cluster)
        self.cluster.kubectl("create", "namespace", NAMESPACE)
        spec = to_domain(self._variants[0].manifest)
        return Watcher(self.cluster, NAMESPACE, engine_for(spec))

    def _serve(self) -> float:
        """Apply the objects and wait until all are Ready; seconds that the example took."""
        assert self.cluster is not None
        self._say("kubectl apply -f examples/emulator/speculative-deployment.yaml")
        apply(self.cluster, self._variants)
        seconds = wait_ready(self.cluster, self._variants[0].name, 120)
        for variant in self._variants[1:]:
            wait_ready(self.cluster, variant.name, 120)
        self._say(f"ready after {seconds:.1f} s; replaying {self.settings.seconds:.0f} s of load")
        return seconds

    def _dashboards(self, since: float) -> list[Shown]:
        """What the dashboards show of the tuned object over the replay."""
        assert self.cluster is not None
        chosen = {"namespace": NAMESPACE, "name": self._variants[0].name}
        found = list(shown(self.cluster.prometheus_url, chosen, since, time.time()))
        self._say(f"asked Prometheus all {len(found)} queries of the Grafana dashboards")
        for one in found:
            if not one.lines:
                self._say(f"nothing to show: {one.where}" + (f" (needs {one.needs})" if one.needs else ""))
        return found

    def _others(self) -> engines.Seen | None:
        """The other engines, at the end, when the comparison cannot be disturbed any more."""
        if self.settings.alone:
            return None
        assert self.cluster is not None
        seen = engines.play(self.cluster, self.settings.out, self._say)
        for one in seen.served:
            self._say(f"{one['engine']}: {one['actuator']}, {one['table']} {one['warnings']}".rstrip())
        for one in seen.refused:
            self._say(f"{one['name']}: {one['reason']}, {one['message']}")
        return seen

    def _pairs(self) -> pairs.Seen | None:
        """Real models on their way, last of all."""
        if self.settings.alone:
            return None
        assert self.cluster is not None
        seen = pairs.play(self.cluster, self.settings.out, self._say)
        self.console.print(terminal.findings_table(seen.findings))
        return seen

    def _send(self, name: str, profile: Profile) -> Sender:
        assert self.cluster is not None
        trace = traces.read(TRACE.read_text().splitlines(), "azure")
        arrivals = warp(trace, profile, self.settings.max_context)
        targets = {one.role: (one.model, one.name) for one in self._variants}
        return Sender(self.cluster, self.settings.out / f"{name}.jsonl", targets, arrivals, REQUEST_TIMEOUT_SECONDS)

    def _replay(self, watcher: Watcher) -> Played:
        pods = watcher.pods()
        started = time.time()
        profile = Profile.climb_and_fall(self.settings.seconds, self.settings.low, self.settings.peak)
        self._load = load = self._send("requests", profile)
        assert self.cluster is not None
        deadline = time.monotonic() + self.settings.seconds + DRAIN_SECONDS
        scene = Scene(total=self.settings.seconds)
        recording = status_view.Recording(self.cluster.kubeconfig, NAMESPACE, self._variants[0].name)
        recorded = 0
        with Screen(self.console) as screen:
            while load.sending:
                if time.monotonic() > deadline:
                    raise SceneError(f"the last answers did not come within {DRAIN_SECONDS:.0f} s of the last request")
                self._look(watcher, pods, started, scene, load)
                screen.show(scene)
                if self.settings.picture and self._top is None and scene.elapsed > 0.66 * self.settings.seconds:
                    self._top = replace(scene, load=[*scene.load], ks=[*scene.ks])
                if self.settings.record and scene.elapsed >= recorded * self.settings.seconds / MOMENTS:
                    recording.look()
                    recorded += 1
                time.sleep(1.0)
        records = load.wait(DRAIN_SECONDS)
        if self.settings.record:
            recording.save(self.settings.record)
        ended = time.time()
        time.sleep(6.0)  # one more scrape, so that the last answers are in the figures
        return self._collect(watcher, pods, started, ended, records)

    def _look(self, watcher: Watcher, pods: dict[str, str], started: float, scene: Scene, load: Sender) -> None:
        scene.elapsed = time.time() - started
        series, now = watcher.series(15), time.time()
        roles = {one.name: one.role for one in self._variants}
        windows = {}
        for pod, name in pods.items():
            own = [one for one in series if one.labels.get("pod") == pod]
            windows[roles[name]] = watcher.window(own, pod, now - 15, now)
        scene.windows = windows
        window = windows.get(AUTO)
        if window is not None:
            scene.load.append(window.running + window.waiting)
            scene.ks.append(window.mean_k or 0.0)
        scene.status = watcher.deployment(self._variants[0].name).get("status") or {}
        scene.decisions = self._note(scene.status)
        records = load.records()
        scene.sent, scene.failed = len(records), sum(record["failed"] for record in records)

    def _note(self, status: dict[str, Any]) -> list[dict[str, Any]]:
        """Remember the decisions of a status; all seen so far, oldest first."""
        for entry in status.get("decisions", []):
            self._decisions[entry["time"]] = entry
        return [self._decisions[moment] for moment in sorted(self._decisions)]

    def _collect(
        self, watcher: Watcher, pods: dict[str, str], started: float, ended: float, records: list[dict[str, Any]]
    ) -> Played:
        roles = {one.name: one.role for one in self._variants}
        line = self._timeline(watcher, pods, started, ended)
        status = dict(watcher.status(self._variants[0].name))
        adopted: dict[int, float] = {}
        lost = 0.0
        for pod, name in pods.items():
            if roles[name] == AUTO:
                log = watcher.log(pod)
                adopted |= adoptions(log)
                lost += lost_seconds(log)
        decisions = self._note(status)
        latencies = table_latencies(decisions, adopted)
        restarts = watcher.restarts()
        return Played(started, ended, line, records, status, restarts, latencies, adopted, decisions, lost, pods)

    def _timeline(self, watcher: Watcher, pods: dict[str, str], started: float, ended: float) -> Timeline:
        """What the pods did, by role."""
        roles = {one.name: one.role for one in self._variants}
        line = watcher.timeline(pods, started, ended)
        line.sights = {roles[name]: sights for name, sights in line.sights.items()}
        line.whole = {roles[name]: window for name, window in line.whole.items()}
        return line

    def _summary(
        self,
        played: Played,
        setup: float,
        ready: float,
        dashboards: list[Shown],
        others: engines.Seen | None,
        paired: pairs.Seen | None,
    ) -> dict[str, Any]:
        phases = phases_of(played.timeline.sights, Phases.of(self.settings.seconds))
        failed = sum(record["failed"] for record in played.records)
        first = unix(played.decisions[0]["time"]) - played.started if played.decisions else None
        compared = compared_blocks(played.timeline.whole.get(AUTO))
        stretches = self._stretches(played)
        judged = not self.settings.alone and not played.lost
        if played.lost:
            self._say(f"this machine was too busy: the tuned emulator lost {played.lost:.1f} s, and is not compared")
        checks = {
            f"first decision within {DECISION_SECONDS:.0f} s of the first request": first is not None
            and first <= DECISION_SECONDS,
            **checks_of_k(phases),
            **(checks_of_phases(phases, stretches) if judged else {}),
            f"tables reach the engine within {ADOPTION_SECONDS:.0f} s": max(played.latencies, default=99.0)
            <= ADOPTION_SECONDS,
            "the engine compares other K with the one in force": bool(compared),
            "no request failed": failed == 0 and len(played.records) > 0,
            "no pod restarted": played.restarts == 0,
            "every query of the dashboards shows something": all(one.lines or one.needs for one in dashboards),
        }
        if others is not None:
            checks["every other engine serves"] = others.all_serve
            checks["what no engine can do gets a reason and no pod"] = others.none_crashes
        if paired is not None:
            checks |= paired.checks()
        for name, good in checks.items():
            mark = "[green]yes[/]" if good else "[red]NO [/]"
            self.console.print(f"  {mark} {name}", highlight=False, soft_wrap=True)
        return {
            "ok": all(checks.values()),
            "setup_seconds": round(setup, 1),
            "ready_seconds": round(ready, 1),
            "first_decision_seconds": round(first, 1) if first is not None else None,
            "table_latency_seconds": spread(played.latencies),
            "compared_blocks": compared,
            "requests": {"total": len(played.records), "failed": failed},
            "pod_restarts": played.restarts,
            "engines": {"serve": len(others.served), "refused": len(others.refused)} if others else None,
            "pairs": paired.summary() if paired else None,
            "phases": {name: asdict(one) for name, one in phases.items()},
            "ten_seconds_of_the_peak_percent": stretches.summary(),
            "lost_seconds": round(played.lost, 1),
            "compared": {role: f"{one.verdict}: {one.why}" for role, one in played.compared.items()},
        }

    def _report(
        self, played: Played, summary: dict[str, Any], others: engines.Seen | None, paired: pairs.Seen | None
    ) -> None:
        path = self.settings.out / "report.html"
        decisions = [(unix(entry["time"]) - played.started, entry["reason"]) for entry in played.decisions]
        phases = Phases.of(self.settings.seconds)
        auto = played.timeline.sights.get(AUTO, [])
        text = (played.status.get("speculation") or {}).get("tableText") or ""
        asked = asked_ks(auto, tables(played.decisions, played.adopted, played.started, text))
        figure = report.plots(played.timeline, [one for one in decisions if one[0] > -5], asked, phases)
        page = {**self._page(played), "others": others, "paired": paired}
        report.write(path, figure, played.compared, page)
        if self.settings.picture and self._top is not None:
            save_picture(replace(self._top, compared=played.compared), self.settings.picture)
        (self.settings.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        self._say(f"report: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")

    def _stretches(self, played: Played) -> Stretches:
        return Stretches.of(played.timeline.sights, Phases.of(self.settings.seconds).peak)

    def _page(self, played: Played) -> dict[str, Any]:
        example = self._variants[0].manifest["spec"]
        phases = phases_of(played.timeline.sights, Phases.of(self.settings.seconds))
        rows = []
        for variant in self._variants:
            sights = played.timeline.sights.get(variant.role, [])
            records = [record for record in played.records if record["target"] == variant.role]
            rows.append({
                "role": variant.role,
                "tpot": [one.cell(variant.role) for one in phases.values()],
                "ttft": [f"{one.ttft_ms.get(variant.role) or 0:,.0f} ms" for one in phases.values()],
                "most": f"{most_concurrent(sights):.0f}",
                "failed": sum(record["failed"] for record in records),
            })  # fmt: skip
        return {
            "pair": f"{example['verifier']['model']} with {example['speculator']['model']}",
            "accelerator": example["accelerator"]["product"],
            "requests": len(played.records) // len(self._variants),
            "seconds": f"{self.settings.seconds:.0f}",
            "trace": "Azure LLM inference trace 2023 (conversation)",
            "rows": rows,
            "peak": self._stretches(played).summary(),
            "lost": f"{played.lost:.1f} s" if played.lost else "",
            "compared": ", ".join(
                f"{blocks:.0f} at K {k}" for k, blocks in compared_blocks(played.timeline.whole.get(AUTO)).items()
            ),
            "ks": ["–" if one.k is None else f"{one.k:.1f}" for one in phases.values()],
            "decisions": [decision_row(entry, played.started, played.adopted) for entry in played.decisions],
            "command": f"make demo ARGS='--seconds {self.settings.seconds:g} --peak {self.settings.peak:g}'",
        }
