"""The part of the spec that says where compiled code of an engine is kept between its pods.

Docstrings below are what users read. A part of `v1alpha1`.
"""

from __future__ import annotations

from pydantic import Field

from speculative_operator.api import scalars
from speculative_operator.api.compiled_rules import COMPILE_CACHE_RULES
from speculative_operator.api.wire import Wire, ruled
from speculative_operator.domain import names
from speculative_operator.domain.spec import AccessMode

_CLAIM = (
    "Name of the claim, which must differ from that of weights.cache. Without size it must exist. With size the "
    "operator creates it if it is missing, for all objects of the namespace that name it, and never deletes it. "
    f"Default: {names.COMPILED_CLAIM}."
)


class CompileCache(Wire):
    """A claim that stores what engines compile at their start, for later pods."""

    model_config = ruled(*COMPILE_CACHE_RULES)

    claim_name: scalars.ObjectName | None = Field(default=None, description=_CLAIM)
    size: scalars.Quantity | None = None
    """Size of the claim that the operator creates, such as 20Gi. If it is left out, the claim must exist."""
    storage_class_name: scalars.ObjectName | None = None
    """Storage class of the claim that the operator creates. Default: the cluster's."""
    access_mode: AccessMode | None = None
    """Access mode of the claim that the operator creates. ReadWriteOnce keeps all its pods on one node. Default:
    ReadWriteMany."""
