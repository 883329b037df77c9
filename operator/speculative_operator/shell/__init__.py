"""The only operator package with I/O: kopf, the API server, Prometheus, the lease, the work queue. Used by app."""
