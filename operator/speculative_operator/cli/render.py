"""Print the manifests that the operator would create for a SpeculativeDeployment, without a cluster.

The same code as in the operator makes them, as at the first reconcile of the object. What only a cluster can tell is
listed on stderr. Do not apply them by hand: the operator creates them, and owns them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from speculative_operator.cli import commands
from speculative_operator.cli.commands import FAILED, OK, CommandError, UsageError

if TYPE_CHECKING:
    from speculative_operator.domain.spec import DeploymentSpec
    from speculative_operator.reconcile.world import Outcome

EPILOG = """examples:
  speculative render Qwen/Qwen3-8B --on H100-SXM
  speculative render pair.yaml
  speculative render pair.yaml --only Deployment
  speculative render pair.yaml | kubectl diff -f -

exit status: 0 rendered, 1 the operator would refuse the object, 2 wrong use of the command line"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    add = parser.add_argument
    commands.add_object(parser)
    add("-n", "--namespace", metavar="NS", default="", help="namespace, where the file names none (default)")
    add("--only", metavar="KIND", default="", help="this kind alone, such as Deployment")
    add("--image", metavar="IMAGE", default="", help="the operator's image, which Jobs and init containers run")
    add("--no-pod-monitor", action="store_true", help="as in a cluster without the kind PodMonitor")


def run(arguments: argparse.Namespace) -> int:
    """Print the manifests; the exit status. Raises CommandError."""
    import yaml

    from speculative_operator.cli.subject import spec_of

    spec = spec_of(commands.read_object(arguments), arguments.file, arguments.namespace)
    outcome = first_reconcile(spec, arguments.image, pod_monitor=not arguments.no_pod_monitor)
    manifests = list(manifests_of(outcome))
    if not manifests:
        ready = next(one for one in outcome.status["conditions"] if one["type"] == "Ready")
        raise CommandError(f"the operator would create nothing: {ready['reason']}: {ready['message']}", status=FAILED)
    chosen = [one for one in manifests if arguments.only.lower() in ("", one["kind"].lower())]
    if not chosen:
        kinds = ", ".join(dict.fromkeys(str(one["kind"]) for one in manifests))
        raise UsageError(f"--only {arguments.only}: no such manifest", f"use one of {kinds}")
    print(yaml.safe_dump_all(chosen, sort_keys=False, width=110, allow_unicode=True), end="")
    for line in explain_cluster(spec, chosen, outcome):
        sys.stderr.write(f"# {line}\n")
    return OK


def first_reconcile(spec: DeploymentSpec, image: str, *, pod_monitor: bool) -> Outcome:
    """The outcome of the operator's first reconcile of the object."""
    from speculative_operator.domain.platform import CanarySeen
    from speculative_operator.reconcile.tick import tick
    from speculative_operator.reconcile.world import World
    from speculative_operator.render import Capabilities

    able = Capabilities(
        pod_monitor=pod_monitor,
        inference_service=True,
        llm_inference_service=True,
        leader_worker_set=True,
        http_route=True,
        job_image=image,
        node_folders=(spec.weights.cache.node_path,) if spec.weights.cache is not None else (),
    )
    canary = CanarySeen(spec.verifier.served_name, service=True, answering=1)
    return tick(World(spec, status={}, children={}, pods=(), capabilities=able, canary=canary), None, None, 0.0)


def manifests_of(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """Yield the manifests that are applied, in their order, without the owner, whose uid is known in a cluster only."""
    from speculative_operator.domain.actions import ApplyChild

    for one in outcome.actions:
        if isinstance(one, ApplyChild):
            metadata = {key: value for key, value in one.manifest["metadata"].items() if key != "ownerReferences"}
            yield {**one.manifest, "metadata": metadata}


def explain_cluster(spec: DeploymentSpec, manifests: list[dict[str, Any]], outcome: Outcome) -> Iterator[str]:
    """Yield sentences on what the operator adds or decides in a cluster, and on what it would warn of."""
    kinds = {one["kind"] for one in manifests}
    yield "in a cluster the operator owns these objects, and deletes them with the SpeculativeDeployment"
    if kinds == {"Job"}:
        yield "the pods' manifests follow when this Job has fetched the models: they name the folders of its result"
    if {"Deployment", "InferenceService", "LLMInferenceService", "LeaderWorkerSet"} & kinds:
        yield "branches and tags of the models are resolved there first: --revision and the label pair then differ"
        yield "the strategy depends on whether one more pod fits on a node of the cluster"
    if any("-table-" in one["metadata"]["name"] for one in manifests if one["kind"] == "ConfigMap"):
        yield "the table is that of the start: the tuner changes it while pods run"
    if spec.route is not None and spec.route.canary is not None:
        yield "the canary gets its share of the requests while a pod of it that answers for the same model is ready"
    if "PodMonitor" in kinds:
        yield "the PodMonitor also gets the labels that the cluster's Prometheus asks for; none without that kind"
    for one in outcome.status.get("warnings") or ():
        yield f"warning {one['reason']}: {one['message']}"
    if spec.auto_speculator and (outcome.status.get("picked") or {}).get("reason"):
        yield f"speculator: {outcome.status['picked']['reason']}"
