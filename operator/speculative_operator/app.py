"""The composition root: the only place that constructs the parts of the operator. `speculative-operator` is `main`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Sequence

import uvloop

from speculative_operator import __version__, settings
from speculative_operator.reconcile.tick import tick
from speculative_operator.settings import Settings, SettingsError
from speculative_operator.shell import logs
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.catalogue import CatalogueFile
from speculative_operator.shell.informer import Informer
from speculative_operator.shell.jobs import Jobs
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.leader import Aside, Leader, LostLeadershipError, identity
from speculative_operator.shell.login import LoginError, own_namespace
from speculative_operator.shell.operator import Operator
from speculative_operator.shell.past import Past
from speculative_operator.shell.prometheus import Prometheus
from speculative_operator.shell.queue import Queue
from speculative_operator.shell.reconciler import Reconciler, Tick
from speculative_operator.shell.report import Budget, Reporter
from speculative_operator.shell.resync import Resync
from speculative_operator.shell.rounds import Rounds
from speculative_operator.shell.scraper import Scraper, WithPods
from speculative_operator.shell.sizes import MIB
from speculative_operator.shell.sources import Sources
from speculative_operator.shell.telemetry import Endpoints, Telemetry
from speculative_operator.shell.trainings import Trainings
from speculative_operator.shell.turns import Turns
from speculative_operator.shell.writes import Writer

log = logging.getLogger(__name__)

EXIT_SETTINGS = 2
EXIT_LOST = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator; the exit status: 0 asked to stop, 1 failed, 2 bad settings, 3 lost the Lease."""
    kubeconfig = _parser().parse_args(argv).kubeconfig
    if not kubeconfig and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        sys.stderr.write(
            "speculative-operator runs in a pod, where its chart installs it. To run it from here, name the cluster "
            "that it may change: --kubeconfig FILE. It takes neither KUBECONFIG nor the current context by itself\n"
        )
        return EXIT_SETTINGS
    os.environ.pop("KUBECONFIG", None)
    if kubeconfig:
        os.environ["KUBECONFIG"] = kubeconfig
    try:
        chosen = settings.load()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SETTINGS
    if kubeconfig and chosen.leader_election and not chosen.lease_namespace:
        sys.stderr.write(
            f"{settings.PREFIX}LEASE_NAMESPACE is not set: name the namespace in which the cluster's operator runs, so "
            "that only one of the two writes\n"
        )
        return EXIT_SETTINGS
    return _serve(chosen)


def _serve(chosen: Settings) -> int:
    """Run until asked to stop; the exit status."""
    logs.configure(chosen.log_level, chosen.log_format)
    log.info("speculative-operator %s", __version__)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(chosen))
    except LostLeadershipError as error:
        log.error("%s", error)
        return EXIT_LOST
    except (LoginError, OSError) as error:
        log.error("%s", error)
        return 1
    except Exception:
        log.exception("the operator stops")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="speculative-operator",
        description="Reconciles SpeculativeDeployments until it is stopped. Its settings are environment variables "
        f"{settings.PREFIX}...: docs/settings.md. The command line tool for people is `speculative`.",
    )
    parser.add_argument("--version", action="version", version=f"speculative-operator {__version__}")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="outside a pod: the cluster to change, by the current context of FILE"
    )
    return parser


async def _run(chosen: Settings) -> None:
    operator = compose(chosen)
    endpoints = Endpoints(chosen.http_host, chosen.http_port, operator.telemetry, operator.healthy, operator.ready)
    await operator.run(endpoints)


def compose(chosen: Settings, tick: Tick = tick) -> Operator:
    """All parts of an operator, connected. Must run inside the event loop."""
    telemetry, cache = Telemetry(), Cache(chosen.namespace_mebibytes * MIB)
    queue: Queue[Key] = Queue(time.monotonic, random.random)
    kube = Kube(chosen, telemetry)
    leader = None
    if chosen.leader_election:
        # A client of its own, for a loop of its own.
        leader = Leader(chosen, Kube(chosen, telemetry), chosen.lease_namespace or own_namespace(), identity())

    def queue_keys(keys: Sequence[Key]) -> None:
        # A namespace of a thousand objects must not hold up a new one elsewhere; a single object need not wait.
        spread = min(0.2 * chosen.tick_seconds, 0.002 * (len(keys) - 1))
        for key in keys:
            queue.add(key, spread * random.random())  # noqa: S311  spreads load only

    prometheus = Prometheus(chosen, address=lambda: resync.prometheus)
    figures = WithPods(prometheus, Scraper(chosen)) if chosen.read_pods else prometheus
    rounds = Rounds(chosen, figures, telemetry, cache.ready_objects, cache.addresses, queue_keys)
    resync = Resync(chosen, kube, cache, queue.add, lambda: informer.watches.failing, prometheus.is_settled)
    leading = (lambda: leader.leading) if leader is not None else (lambda: True)
    writer = Writer(kube, cache, telemetry, leading, resync.asked.set)
    rows = CatalogueFile(chosen.catalogue, telemetry, time.monotonic)
    turns = Turns(chosen.inspect_jobs, time.monotonic)
    budget = Budget(lambda: len(cache), time.monotonic)
    jobs = Jobs(kube, time.monotonic)
    # With a Prometheus of its own: one is for one thread of a namespace at a time.
    past = Past(chosen, Prometheus(chosen, address=lambda: resync.prometheus).fetch, cache.addresses)
    sources = Sources(rounds.latest, resync.capabilities, jobs, turns, budget, past, rows.current)
    reconciler = Reconciler(chosen, cache, writer, Reporter(kube, cache, telemetry, leading), telemetry, sources, tick)
    informer = Informer(chosen, cache, queue, telemetry, resync.asked.set, reconciler.canaries.leading_to)
    trainings = Trainings(chosen, kube, telemetry, leading, lambda: resync.assigns_uids)
    return Operator(
        chosen, kube, cache, queue, informer, resync, rounds, reconciler, trainings, leader, telemetry, Aside()
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
