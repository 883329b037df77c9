"""Writes what is generated from the code: the CRD, RBAC, the values of the chart, manifests and pages."""
