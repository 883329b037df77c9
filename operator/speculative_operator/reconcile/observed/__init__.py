"""What was observed: the workload, its pods and their metrics, read from what the cluster has."""
