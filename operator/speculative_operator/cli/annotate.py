"""Tell the operator something about objects, by the annotation that it reads.

pause     the operator changes nothing of the object any more; what runs serves on
resume    the operator goes on
approve   the rollout that the operator proposes is made now, and no other; or the canary that has passed all steps is
          promoted
adopt     pods are created as the installed release of the operator creates them
repin     branches and tags of the models are resolved again
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from speculative_operator.cli import cluster
from speculative_operator.cli.cluster import Cluster
from speculative_operator.cli.commands import FAILED, OK, CommandError, UsageError
from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp

EPILOG = """examples:
  speculative pause qwen3-8b -n models
  speculative pause -l team=chat -n models
  speculative approve qwen3-8b -n models

exit status: 0 done, 1 there is no such object, nothing to approve, or the cluster refused"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="SpeculativeDeployments")
    parser.add_argument("--all", action="store_true", help="all of the namespace")
    cluster.add_selector(parser)
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Annotate, and print what follows; the exit status. Raises CommandError."""
    if bool(arguments.names) + arguments.all + bool(arguments.selector) != 1:
        raise UsageError("it is not clear which objects are meant", "give names, or --all, or -l LABELS")
    at = Cluster(arguments)
    found = [at.object(name) for name in arguments.names] or at.objects(labels=arguments.selector)
    for body, (annotation, value, follows) in [(one, _annotation(arguments.command, one)) for one in found]:
        at.annotate(body["metadata"]["name"], annotation, value)
        print(f"{body['metadata']['name']}: {follows}")
    return OK if found else FAILED


def _annotation(command: str, body: Any) -> tuple[str, str | None, str]:
    """Name and value of the annotation, and what the operator does then."""
    today = timestamp(time.time())
    if command == "pause":
        return names.ANNOTATION_PAUSED, "true", "paused; its pods keep serving with their table"
    if command == "resume":
        return names.ANNOTATION_PAUSED, None, "the operator tunes it again"
    if command == "adopt":
        return names.ANNOTATION_ADOPT, today, "pods are replaced where the installed operator creates other ones"
    if command == "repin":
        return names.ANNOTATION_REPIN, today, "branches and tags of its models are resolved again"
    status = body.get("status") or {}
    proposal = (status.get("rollout") or {}).get("proposal") or {}
    proposal = proposal if proposal.get("accept") else status.get("canary") or {}
    if not proposal.get("accept"):
        raise CommandError(f"the operator proposes no rollout of {body['metadata']['name']}, and no canary waits")
    return names.ANNOTATION_ACCEPT, str(proposal["accept"]), f"approved: {proposal.get('message', '')}"
