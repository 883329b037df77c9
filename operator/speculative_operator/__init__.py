"""Kubernetes operator for speculative decoding: pairs, tunes and guards it. Package order: docs/development.md."""

__version__ = "0.1.0"
