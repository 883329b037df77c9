"""The process node: a Kubernetes node that runs pods as local processes, without a container engine.

It registers a Node, keeps its Lease, and runs each pod bound to it in mount, process and network namespaces of its
own, so that volumes, tokens, names and addresses are where the manifest says. Started by the development cluster
inside its enclosure: ``python -m devcluster.node --config node.json``.

Not enforced here, because only one user is mapped and there are no control groups: runAsUser, capabilities, seccomp,
CPU and memory limits, NetworkPolicy. Not served: exec, attach and port-forward of the kubelet API.
"""
