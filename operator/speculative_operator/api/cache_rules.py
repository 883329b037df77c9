"""Constraints on where weights and compiled code are kept, as CEL for the API server. A part of `rules`."""

from __future__ import annotations

from speculative_operator.api.wire import Rule

_OF_CLAIM = "has(self.claimName) || has(self.size) || has(self.storageClassName) || has(self.accessMode)"


def _of_claim(field: str, prefix: str, instead: str = "") -> tuple[Rule, ...]:
    """Rules of a claim in `field`; `instead` is CEL for what may stand there without one."""
    return (
        Rule(
            f"{prefix}-claim",
            f"has(self.claimName) || has(self.size){instead}",
            f"{field} has no claimName and no size: set claimName to an existing claim, or set size to create one",
            "size",
            "FieldValueRequired",
        ),
        Rule(
            f"{prefix}-class-of-new",
            "!has(self.storageClassName) || has(self.size)",
            'storageClassName is "{self.storageClassName}" but size is not set: set size to create a claim, or remove '
            "this",
            "storageClassName",
            "FieldValueForbidden",
        ),
        Rule(
            f"{prefix}-access-of-new",
            "!has(self.accessMode) || has(self.size)",
            "accessMode is {self.accessMode} but size is not set: set size to create a claim, or remove this",
            "accessMode",
            "FieldValueForbidden",
        ),
    )


COMPILE_CACHE_RULES = _of_claim("compileCache", "compile-cache")
CACHE_RULES = (
    *_of_claim("cache", "cache", " || has(self.nodePath) || has(self.emptyDir)"),
    Rule(
        "cache-node-path-alone",
        f"!has(self.nodePath) || !({_OF_CLAIM} || has(self.emptyDir))",
        'nodePath is "{self.nodePath}" but a claim or emptyDir is set too: keep one of the three',
        "nodePath",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-empty-dir-alone",
        f"!has(self.emptyDir) || !({_OF_CLAIM})",
        "emptyDir is set but a claim is set too: keep one of the two",
        "emptyDir",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-collect-shared",
        "!has(self.emptyDir) || !has(self.collect) || !self.collect",
        "collect is true but emptyDir is set: remove collect, because an emptyDir is deleted with its pod",
        "collect",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-reserve-of-node",
        "!has(self.reservePercent) || has(self.nodePath)",
        "reservePercent is {#self.reservePercent} but nodePath is not set: remove it, because it applies to disks of "
        "nodes only",
        "reservePercent",
        "FieldValueForbidden",
    ),
)

_COMPILED = "has(self.engine.compileCache) && has(self.engine.compileCache.claimName)"
_CACHED = "has(self.weights) && has(self.weights.cache) && has(self.weights.cache.claimName)"

COMPILE_CACHE_APART = (
    Rule(
        "compile-cache-apart",
        f"!({_COMPILED}) || !({_CACHED}) || self.engine.compileCache.claimName != self.weights.cache.claimName",
        'engine.compileCache.claimName is "{self.engine.compileCache.claimName}", the claim of weights.cache: set '
        "another one, because pods write to it",
        "engine.compileCache.claimName",
    ),
)
