"""What a replica of several nodes must fulfil: rules of the definition, and the same for `checks`. A part of `rules`.

A StatefulSet labels its pods with its own name and a hash, in at most 63 characters. The longest name is that of the
workers of one group: NAME-group-1000.
"""

from __future__ import annotations

from speculative_operator.api.wire import Rule
from speculative_operator.domain.spec import Target

GROUP_NAME_LIMIT = 41
"""Characters of metadata.name: 52 less those of `-group-1000`."""
_OTHER = f"self.target != '{Target.LEADER_WORKER_SET}'"
_RANKS = "self.verifier.tensorParallelSize * self.verifier.pipelineParallelSize"

GROUP_ROOT_RULES = (
    Rule(
        "group-name",
        f"!has(self.spec.target) || self.spec.target != '{Target.LEADER_WORKER_SET}' || "
        f"size(self.metadata.name) <= {GROUP_NAME_LIMIT}",
        f'metadata.name is "{{self.metadata.name}}" and spec.target is {Target.LEADER_WORKER_SET}: use at most '
        f"{GROUP_NAME_LIMIT} characters, because labels of the pods carry the name and more",
        "metadata.name",
    ),
)
GROUP_RULES = (
    Rule(
        "nodes-target",
        f"!has(self.nodes) || !({_OTHER})",
        f"nodes is {{#self.nodes}} but target is {{self.target}}: set target: {Target.LEADER_WORKER_SET}, or remove "
        "nodes",
        "nodes",
        "FieldValueForbidden",
    ),
    Rule(
        "target-nodes",
        f"has(self.nodes) || {_OTHER}",
        f"nodes is not set but target is {Target.LEADER_WORKER_SET}: set nodes to the number of nodes of one replica",
        "nodes",
        "FieldValueRequired",
    ),
    Rule(
        "nodes-share-evenly",
        f"!has(self.nodes) || {_OTHER} || ({_RANKS}) % self.nodes == 0",
        f"nodes is {{#self.nodes}}: write a number that divides {{#({_RANKS})}}, the product of the verifier's "
        "tensorParallelSize and pipelineParallelSize",
        "nodes",
    ),
    Rule(
        "nodes-data-parallel",
        f"{_OTHER} || self.verifier.dataParallelSize == 1",
        "verifier.dataParallelSize is {#self.verifier.dataParallelSize} but target is "
        f"{Target.LEADER_WORKER_SET}: remove it, and raise replicas instead",
        "verifier.dataParallelSize",
        "FieldValueForbidden",
    ),
)
