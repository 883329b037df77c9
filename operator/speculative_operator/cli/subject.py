"""Prepares what a command works on: a SpeculativeDeployment -> its engine and the tuner's policy.

Used by `plan`, `check`, `render` and the laboratory's `simulate`. Reads what the operator would, refuses what the
operator would refuse, but for where the weights lie and what the cluster makes of them: nothing is served here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.api.convert import SpecError, to_domain
from speculative_operator.cli.commands import UsageError
from speculative_operator.domain import names
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.reading import at, mapping
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Workload
from speculative_operator.engines.base import Engine
from speculative_operator.engines.pairs import choose, pair_facts, with_entry
from speculative_operator.engines.registry import engine_for
from speculative_operator.pairing.catalogue import Catalogue, load_packaged
from speculative_operator.reconcile.table.deciding import policy_of

NAME = "deployment"
"""Name of an object without metadata."""


@dataclass(frozen=True)
class Subject:
    """One deployment with the engine and the policy for decisions on it."""

    spec: DeploymentSpec
    engine: Engine
    policy: Policy

    def with_workload(self, workload: Workload) -> Subject:
        """The same deployment for another kind of text."""
        speculation = replace(self.spec.speculation, workload=workload)
        spec, policy = replace(self.spec, speculation=speculation), replace(self.policy, workload=workload)
        return replace(self, spec=spec, policy=policy)


def subject(body: Any, rows: Catalogue | None = None) -> Subject:
    """The deployment that `body` describes: a whole SpeculativeDeployment, or its `spec` alone. `rows`: speculators to
    pick from where it leaves its own to the operator. Raises SpecError, also where none of them is for the verifier."""
    spec = to_domain(whole(body))
    if spec.auto_speculator:
        choice = choose(spec, rows or load_packaged())
        if choice.entry is None:
            raise SpecError("spec.speculator.auto", True, choice.reason)
        spec = with_entry(spec, choice.entry)
    engine = engine_for(spec)
    for refusal in engine.refusals(spec):
        if refusal.reason is not Reason.UNSUPPORTED_SOURCE:
            refused = SpecError(refusal.field, None, refusal.message)
            refused.args = (refusal.message,)  # the engine's message names field and value
            raise refused
    return Subject(spec, engine, policy_of(spec, knobs=engine.knobs(spec), facts=pair_facts(spec)))


def spec_of(body: Any, named: str = "", namespace: str = "") -> DeploymentSpec:
    """The spec that `body` describes, in `namespace` where it names none. Raises UsageError with `named`, its file."""
    try:
        told = whole(body)
        told["metadata"].setdefault("namespace", namespace or "default")
        return to_domain(told)
    except SpecError as problem:
        raise UsageError(f"{named}: {problem}" if named else str(problem)) from None


def whole(body: Any) -> dict[str, Any]:
    """A whole object with metadata, made of an object or of its spec alone. Raises SpecError."""
    if not isinstance(body, Mapping):
        raise SpecError("spec", body, "use a SpeculativeDeployment, or its spec")
    if not body:
        raise SpecError("spec", body, "it is empty; write at least verifier, with its model")
    kind = body.get("kind", names.KIND)
    if kind != names.KIND:
        raise SpecError("kind", kind, f"use {names.KIND}")
    whole = dict(body) if "spec" in body or "verifier" not in body else {"spec": dict(body)}
    for path in (("metadata",), ("metadata", "annotations")):
        found = at(whole, *path)
        if found is not None and not isinstance(found, Mapping):
            raise SpecError(".".join(path), found, "use an object with named fields, or remove it")
    read = {key: value for key, value in mapping(whole, "metadata").items() if key in _READ}
    return {**whole, "metadata": {"name": NAME, **read}}


_READ = ("name", "namespace", "annotations")
