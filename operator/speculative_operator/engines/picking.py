"""Picks a speculator that an engine can run for one spec, and puts it there: the part of `speculator: {auto: true}`
that is the same in the operator, in `speculative check` and in the commands that need a whole spec.

Called by `reconcile.picking`, `cli.check` and `cli.subject`. This module knows nothing of earlier picks.
"""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.memo import Memo, digest
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, ModelSource, Scheme, Speculator
from speculative_operator.engines.base import Engine
from speculative_operator.engines.registry import engine_for
from speculative_operator.pairing.catalogue import Catalogue, Choice, Entry, pick

Key = tuple[str, Method]
"""URI in lower case, and method."""
_OPEN = (Mode.AUTO, Mode.RECOMMEND)
"""Modes in which K is the operator's to choose, and the catalogue's K where it starts."""


def choose(
    spec: DeploymentSpec,
    among: Catalogue,
    base_models: tuple[str, ...] = (),
    *,
    without: frozenset[Key] = frozenset(),
    only: Key | None = None,
    memo: Memo | None = None,
) -> Choice:
    """Choose the best catalogue entry for the verifier of `spec` that its engine serves.

    Entries with a key in `without` are passed over; with `only`, all but the entry of that key.

    `memo` holds recent choices: engines take milliseconds to say what they serve.
    """
    asked = replace(spec, generation=0, replicas=1, paused=False)
    engine = engine_for(spec)

    def serves(entry: Entry) -> bool:
        key = key_of(entry)
        asked_for = key not in without and only in (None, key)
        return asked_for and not hindrance(with_entry(asked, entry), engine)

    key = ("choose", among, digest(asked), base_models, without, only)
    uri = spec.verifier.source.uri
    return (memo or Memo()).get(key, lambda: pick(uri, base_models, serves, among=among))


def key_of(entry: Entry) -> Key:
    """The key by which speculators for one verifier differ: URI in lower case, and method."""
    return (entry.uri.lower(), entry.method)


def with_entry(spec: DeploymentSpec, entry: Entry) -> DeploymentSpec:
    """`spec` with the speculator of `entry`, starting at its K."""
    return with_speculator(spec, speculator(entry.method, entry.uri, one_pass=entry.one_pass), entry.k)


def speculator(method: Method, uri: str, *, one_pass: bool) -> Speculator:
    """The speculator as a value of the spec; an empty `uri` says that its weights are part of the verifier."""
    scheme, _, location = uri.partition("://")
    return Speculator(method, ModelSource(Scheme(scheme), location) if uri else None, parallel_drafting=one_pass)


def with_speculator(spec: DeploymentSpec, desired: Speculator | None, k: int | None) -> DeploymentSpec:
    """`spec` with `desired`; `k` is where tuning starts, unless the spec says or fixes it."""
    speculation = spec.speculation
    if k is not None and speculation.num_speculative_tokens is None and speculation.mode in _OPEN:
        start = min(k, speculation.max_speculative_tokens)
        speculation = replace(speculation, num_speculative_tokens=start)
    return replace(spec, speculator=desired, speculation=speculation)


def hindrance(spec: DeploymentSpec, engine: Engine) -> str:
    """Why the engine does not serve `spec` with its speculator, though it would without; empty where it does."""
    alone = {one.message for one in engine.refusals(replace(spec, speculator=None))}
    return next((one.message for one in engine.refusals(spec) if one.message not in alone), "")
