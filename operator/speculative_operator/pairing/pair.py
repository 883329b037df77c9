"""One pair with all its facts, made once by `judge` and handed to every module of `compared`."""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.artifact import ModelFacts
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, Speculator
from speculative_operator.pairing.codes import Code
from speculative_operator.pairing.findings import Finding, Level
from speculative_operator.pairing.rules import EngineRules
from speculative_operator.pairing.speculator_files import Nature

HEADS = frozenset({Method.EAGLE, Method.EAGLE3, Method.DFLASH, Method.DSPARK, Method.MEDUSA})
"""Methods whose weights were trained on one verifier's hidden states."""
BLOCKS = frozenset({Method.DFLASH, Method.DSPARK})
INNER = frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK})
"""Methods that read hidden states from inside the verifier."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A verifier and a speculator of its own, for one spec and one engine."""

    verifier: ModelFacts
    speculator: ModelFacts
    """Facts of the speculator; the verifier's own where it drafts with modules of its own."""
    spec: DeploymentSpec
    requested: Speculator
    rules: EngineRules
    nature: Nature
    """The method by the speculator's files."""
    k: int
    """The largest K that may occur."""

    @property
    def method(self) -> Method:
        """The speculator's method as the spec asks for it."""
        return self.requested.method

    @property
    def inside(self) -> bool:
        """True when the verifier's own checkpoint holds the speculator."""
        return self.speculator is self.verifier

    @property
    def separate_head(self) -> bool:
        """True for a head that lies in files of its own and reads this verifier's hidden states."""
        return not self.inside and (self.method in HEADS or self.method is Method.MTP)


def largest_k(spec: DeploymentSpec, rules: EngineRules) -> int:
    """The largest K that may occur: the engine adapter's, else the spec's."""
    if rules.largest_k is not None:
        return max(1, rules.largest_k)
    speculation = spec.speculation
    if speculation.mode is Mode.STATIC:
        if speculation.schedule is not None:
            return max(1, *speculation.schedule.ks)
        return speculation.num_speculative_tokens or speculation.max_speculative_tokens
    return speculation.max_speculative_tokens


def error(code: Code, field: str, values: tuple[object, object], message: str, remedy: str) -> Finding:
    """A finding of level Error; `values` are (verifier's, speculator's), None without one."""
    return Finding(Level.ERROR, code.value, field, _show(values[0]), _show(values[1]), message, remedy)


def warning(code: Code, field: str, values: tuple[object, object], message: str, remedy: str = "") -> Finding:
    """A finding of level Warning; arguments as in `error`."""
    return Finding(Level.WARNING, code.value, field, _show(values[0]), _show(values[1]), message, remedy)


def info(code: Code, field: str, values: tuple[object, object], message: str, remedy: str = "") -> Finding:
    """A finding of level Info, worth knowing; arguments as in `error`."""
    return Finding(Level.INFO, code.value, field, _show(values[0]), _show(values[1]), message, remedy)


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value)) or ""
    return "" if value is None else str(value)
