"""Addresses of the enclosure's private network: one place, so that no two parts claim the same one.

Both ranges are local addresses of the enclosure's loopback interface, so any process inside can bind any of them.
They are not 127.x because the API server refuses loopback addresses in EndpointSlices.
"""

POD_RANGE = "10.88.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"

API_SERVER = "10.88.0.1"
API_SERVER_PORT = 6443
KUBERNETES_SERVICE = "10.96.0.1"
"""First address of the service range: the API server gives it to the Service `kubernetes`."""

NODE = "10.88.0.2"
NODE_POD_RANGE = "10.88.1.0/24"
KUBELET_PORT = 10250

PROMETHEUS = "10.88.0.3"
PROMETHEUS_PORT = 9090
PROMETHEUS_SERVICE = "10.96.0.90"
"""In the low part of the range, which the API server leaves to addresses chosen by hand."""

ETCD = "127.0.0.1"
ETCD_CLIENT_PORT = 2379
ETCD_PEER_PORT = 2380
