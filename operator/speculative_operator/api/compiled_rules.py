"""Constraints on where compiled code is kept, as CEL for the API server. A part of `rules`."""

from __future__ import annotations

from speculative_operator.api.wire import Rule

COMPILE_CACHE_RULES = (
    Rule(
        "compile-cache-claim",
        "has(self.claimName) || has(self.size)",
        "compileCache has no claimName and no size: set claimName to an existing claim, or set size to create one",
        "size",
        "FieldValueRequired",
    ),
    Rule(
        "compile-cache-class-of-new",
        "!has(self.storageClassName) || has(self.size)",
        'storageClassName is "{self.storageClassName}" but size is not set: set size to create a claim, or remove this',
        "storageClassName",
        "FieldValueForbidden",
    ),
    Rule(
        "compile-cache-access-of-new",
        "!has(self.accessMode) || has(self.size)",
        "accessMode is {self.accessMode} but size is not set: set size to create a claim, or remove this",
        "accessMode",
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
