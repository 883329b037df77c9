"""Decisions from scrapes without Kubernetes, for `speculative tune` and `speculative replay`.

Pure: parses the text that pods expose, keeps a short memory of it in place of a Prometheus server, and asks the tuner.
"""
