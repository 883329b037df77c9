"""How a start fails: exit code 1, the message on the error stream. Raised by what reads command lines, handled by
`dialect.run`."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration that the engine refuses at start."""


class LateError(ConfigError):
    """A configuration error that vLLM meets only after the weights are loaded."""


def invalid(model: str, *problems: tuple[str, str]) -> ConfigError:
    """An object that fails its schema, in the words of pydantic's report; `problems` are (field, message)."""
    noun = "error" if len(problems) == 1 else "errors"
    lines = [f"{len(problems)} validation {noun} for {model}", *(f"{field}\n  {told}" for field, told in problems)]
    return ConfigError("\n".join(lines))
