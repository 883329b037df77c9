"""The command line `speculative`, also found by kubectl as `kubectl speculative`. docs/cli.md is its manual.

`main` reads the arguments; each command is a module of its own with `add_arguments` and `run`, loaded when it is asked
for, so that help is there at once.
"""
