"""What the adapters have in common: sources, flags, checks; without vLLM also planning, container and reading."""
