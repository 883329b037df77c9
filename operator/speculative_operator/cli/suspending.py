"""Drafts of an object that serves, suspended for a while: no request has drafts until they are given back, or until
the pods take them back by themselves. Used by `verify` and `bench`.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from speculative_operator.cli.asking import Engine
from speculative_operator.cli.cluster import Cluster, Object, mode, speculation
from speculative_operator.cli.commands import CommandError
from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.table import Actuator

MOST_MINUTES = 15
"""Minutes; the operator refuses more."""
DELIVERY_SECONDS = 120.0
"""In which pods follow another table: a kubelet delivers it within seconds, or at its next look after a minute."""
PROBE = 16
"""Tokens of an answer that only shows whether the pod drafts."""


def check_live(body: Object) -> None:
    """Raises CommandError where drafts of the object cannot be suspended."""
    name, seen = body["metadata"]["name"], speculation(body)
    remedy = "compare it with an object of mode: Disabled: --against OTHER"
    if mode(body) == "Paused":
        raise CommandError(f"{name} is paused: drafts cannot be suspended", f"speculative resume {name}, or {remedy}")
    if seen.get("actuator") != Actuator.LIVE.value or seen.get("speculatorRemoved"):
        raise CommandError(f"K of {name} cannot change while its pods serve", remedy)


def check_comparable(body: Object, other: Object) -> None:
    """Raises CommandError where the two objects serve different verifiers."""
    ours, theirs = (one["spec"]["verifier"].get("model") for one in (body, other))
    if ours != theirs:
        raise CommandError(f"the verifiers differ: {ours} and {theirs}", "compare objects of one verifier")


@contextmanager
def suspended(at: Cluster, name: str, engine: Engine, minutes: int) -> Iterator[None]:
    """Suspends drafts for the block, which SIGTERM ends like an interrupt does."""
    ends, before = time.time() + 60.0 * minutes, signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        at.annotate(name, names.ANNOTATION_SUSPEND, timestamp(ends))
        print(f"drafts of {name} are suspended until {timestamp(ends)} at most", file=sys.stderr)
        if not wait(engine, drafts=False):
            remedy = "speculative explain tells why the annotation is ignored; else use --against"
            raise CommandError(f"the pods of {name} still draft", remedy)
        engine.until = ends
        yield
    finally:
        engine.until = None
        at.annotate(name, names.ANNOTATION_SUSPEND, None)
        signal.signal(signal.SIGTERM, before)


def wait(engine: Engine, *, drafts: bool) -> bool:
    """True once the pod drafts for a prompt, or for none of two in a row; False where it never does."""
    deadline, alike = time.monotonic() + DELIVERY_SECONDS, 0
    while alike < (1 if drafts else 2):
        if time.monotonic() > deadline:
            return False
        before = engine.count_drafts()
        engine.answer(engine.prompts[0], PROBE)
        alike = alike + 1 if (engine.count_drafts() != before) is drafts else 0
        time.sleep(0.0 if alike else 2.0)
    return True
