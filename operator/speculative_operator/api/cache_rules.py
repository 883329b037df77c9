"""Constraints on where weights are kept, as CEL for the API server. A part of `rules`."""

from __future__ import annotations

from speculative_operator.api.wire import Rule

_OF_CLAIM = "has(self.claimName) || has(self.size) || has(self.storageClassName) || has(self.accessMode)"

CACHE_RULES = (
    Rule(
        "cache-claim",
        "has(self.claimName) || has(self.size) || has(self.nodePath) || has(self.emptyDir)",
        "cache has no claimName and no size: set claimName to an existing claim, or set size to create one",
        "size",
        "FieldValueRequired",
    ),
    Rule(
        "cache-class-of-new",
        "!has(self.storageClassName) || has(self.size)",
        'storageClassName is "{self.storageClassName}" but size is not set: set size to create a claim, or remove this',
        "storageClassName",
        "FieldValueForbidden",
    ),
    Rule(
        "cache-access-of-new",
        "!has(self.accessMode) || has(self.size)",
        "accessMode is {self.accessMode} but size is not set: set size to create a claim, or remove this",
        "accessMode",
        "FieldValueForbidden",
    ),
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
