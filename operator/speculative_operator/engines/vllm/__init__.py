"""The vLLM adapter: capability as data, command line, environment, and the reading of its metrics."""
