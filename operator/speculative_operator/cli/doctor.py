"""Look for what keeps objects from being tuned: what is installed, what the operator may do, how Prometheus finds the
pods, which table they follow, which accelerators are free, and what the operator says of every object. Each finding
has what to do next; what you may not ask is named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal

from speculative_operator.cli import cluster, inspection, scraped, terminal
from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import FAILED, OK, UnseenError
from speculative_operator.cli.inspection import GOOD, UNKNOWN, WRONG, Found, Look, full_name
from speculative_operator.domain.formats import quantity
from speculative_operator.domain.reading import at
from speculative_operator.domain.reasons import Reason
from speculative_operator.reconcile.snapshot.requests import request_of


def accelerators(look: Look) -> Iterator[Found]:
    """Yield the free accelerators of each kind, and a fault where pods wait and no node has enough."""
    asked = {resource for body in look.objects for pod in look.pods_of(body) for resource, _ in _scarce(pod)}
    free = {resource: _free(look, resource) for resource in sorted(asked)}
    for resource, nodes in free.items():
        spare = ", ".join(f"{left} of {every} on {name}" for name, (left, every) in nodes.items() if left > 0)
        yield Found(f"{resource} free: {spare or 'none'}", "", GOOD)
    for body in look.objects:
        waiting = [pod for pod in look.pods_of(body) if not pod["spec"].get("nodeName")]
        for resource, count in {one for pod in waiting for one in _scarce(pod)}:
            if all(left < count for left, _ in free[resource].values()):
                message = (
                    f"{full_name(body)}: {len(waiting)} pods wait for {count} {resource} each; no node has as many free"
                )
                yield Found(message, "free some, or add a node: kubectl get pods -A -o wide")


def _scarce(pod: Object) -> list[tuple[str, Decimal]]:
    """The resources other than the node's own that a pod asks for, with their amounts."""
    return [(name, count) for name, count in (request_of(pod) or {}).items() if "/" in name and count > 0]


def _free(look: Look, resource: str) -> dict[str, tuple[Decimal, Decimal]]:
    """Node -> the free and the whole amount of a resource, for nodes that have any and take pods."""
    taken: dict[str, Decimal] = {}
    for pod in look.pods:
        node = pod["spec"].get("nodeName") or ""
        taken[node] = taken.get(node, Decimal(0)) + (request_of(pod) or {}).get(resource, Decimal(0))
    found = {}
    for node in look.at.nodes():
        name, every = node["metadata"]["name"], quantity(at(node, "status", "allocatable", resource))
        if every and not node["spec"].get("unschedulable"):
            found[name] = (every - taken.get(name, Decimal(0)), every)
    return found


EPILOG = """examples:
  speculative doctor
  speculative doctor -o json

exit status: 0 nothing is wrong in what could be looked at, 1 something is, or the cluster cannot be reached, 2 wrong
use of the command line"""


ASKS = frozenset({Reason.ROLLOUT_NEEDS_APPROVAL, Reason.CANARY_NEEDS_APPROVAL})
"""Warnings that ask for a decision: nothing is wrong."""


def objects(look: Look) -> Iterator[Found]:
    """Yield the objects that no operator looks after, and what it says of the others that no check before has told:
    every fault, and the warnings that somebody can mend."""
    apart = scraped.PROMETHEUS | scraped.FRESHNESS | scraped.LABELS | scraped.FIGURES | scraped.TABLES
    for body in look.objects:
        if not body.get("status"):
            message = f"{full_name(body)} has no status: the operator has not looked at it"
            yield Found(message, "name its namespace in watchNamespaces of the chart")
    for body, one in look.findings():
        if one.reason not in apart and (one.source != "warning" or (one.next and one.reason not in ASKS)):
            yield scraped.finding_of(body, one)
    if look.narrow:
        only = f"only objects of namespace {look.at.namespace} were looked at: you may not list those of all namespaces"
        yield Found(only, "", UNKNOWN)


CHECKS: dict[str, tuple[str, Callable[[Look], Iterator[Found]]]] = {
    "definition": ("declares every field of the status", inspection.definition),
    "operator": ("has a ready pod that leads", inspection.operator),
    "rights": ("the operator may do what it must", inspection.rights),
    "selectors": ("every PodMonitor is selected, or nothing selects by label", scraped.selectors),
    "prometheus": ("the operator reports no trouble with it", scraped.prometheus),
    "freshness": ("figures are new", scraped.freshness),
    "labels": ("figures bear the labels of their pods", lambda look: scraped.findings_with(look, scraped.LABELS)),
    "figures": ("engines' figures are there", scraped.figures),
    "tables": ("pods follow the active table", scraped.tables),
    "accelerators": ("no object asks for any", accelerators),
    "objects": ("the operator reports no fault", objects),
}
"""Check -> the sentence that holds where it finds nothing, and the check."""
BY_STATUS = frozenset({"prometheus", "freshness", "labels", "figures", "tables", "objects"})
"""Checks that find what an operator wrote into a status: without one they find nothing, well or not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    terminal.add_format(parser, "what is well too")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; returns the exit status. Raises CommandError."""
    look = Look(Cluster(arguments))
    found = [(check, one) for check in CHECKS for one in make_check(check, look)]
    results = {one.result for _, one in found}
    if arguments.output in (terminal.TEXT, terminal.WIDE):
        lines = list(_lines(found, wide=arguments.output == terminal.WIDE))
        terminal.write_coloured(sys.stdout, cluster.plain("\n".join([*lines, _summary(results)])))
    else:
        checks = [
            {"check": check, "result": one.result, "message": one.message, "next": one.next} for check, one in found
        ]
        print(terminal.format_document({"ok": WRONG not in results, "checks": checks}, arguments.output))
    return FAILED if WRONG in results else OK


def _lines(found: list[tuple[str, Found]], *, wide: bool) -> Iterator[str]:
    """Yield the findings, each with its remedy below it; last, the checks that found nothing."""
    well = dict.fromkeys(check for check, one in found if one.result == GOOD)
    for check, one in found:
        if wide or one.result != GOOD:
            well.pop(check, None)
            yield f"{one.result:<8} {check:<13} {one.message}"
            if one.next:
                yield f"{'':<9}next          {one.next}"
    if well:
        yield f"{GOOD:<8} {', '.join(well)}"


def make_check(check: str, look: Look) -> list[Found]:
    """The findings of one check; one that all is well, or that the check could not be made, where it finds nothing."""
    well, find = CHECKS[check]
    found: list[Found] = []
    try:
        found.extend(find(look))
    except UnseenError as problem:
        found.append(Found(f"not looked at: {problem.problem}", "", UNKNOWN))
    if not found and check in BY_STATUS and not look.leads:
        return [Found("not known: no operator leads, and what it wrote last may be old", "", UNKNOWN)]
    return found or [Found(well, "", GOOD)]


def _summary(results: set[str]) -> str:
    if WRONG in results:
        return "something is wrong"
    return "nothing is wrong" + " in what could be looked at" * (UNKNOWN in results)
