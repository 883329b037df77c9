"""Tell the operator something about one object, by the annotation that it reads.

pause     the operator changes nothing of the object any more; what runs serves on
resume    the operator goes on
approve   the rollout that the operator proposes is made now, and no other; or the canary that has passed all steps is
          promoted
adopt     pods are created as the installed release of the operator creates them
repin     branches and tags of the models are resolved again
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from speculative_operator.cli import cluster
from speculative_operator.cli.cluster import Cluster
from speculative_operator.cli.commands import OK, CommandError
from speculative_operator.domain import names

EPILOG = """examples:
  speculative pause qwen3-8b -n models
  speculative approve qwen3-8b -n models

exit status: 0 done, 1 there is nothing to approve, or the cluster refused"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", help="the SpeculativeDeployment")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Annotate, and print what follows; the exit status. Raises CommandError."""
    at, name = Cluster(arguments), arguments.name
    annotation, value, follows = _annotation(arguments.command, at.object(name))
    at.annotate(name, annotation, value)
    print(f"{name}: {follows}")
    return OK


def _annotation(command: str, body: Any) -> tuple[str, str | None, str]:
    """Name and value of the annotation, and what the operator does then."""
    today = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if command == "pause":
        return names.ANNOTATION_PAUSED, "true", "paused; pods serve on with the table that they have"
    if command == "resume":
        return names.ANNOTATION_PAUSED, None, "the operator goes on"
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
