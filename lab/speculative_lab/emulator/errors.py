"""How a start fails, with the exit codes that vLLM has for it. Raised by the parsing modules, handled by `__main__`."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration that the engine refuses at start: exit code 1, the message on the error stream."""


class ValidationError(ConfigError):
    """A configuration object that fails its schema, worded like pydantic's report (which is what vLLM shows).

    `problems` are triples (field, message, kind), such as ("foo", "Input should be greater than 0", "greater_than").
    """

    def __init__(self, model: str, problems: list[tuple[str, str, str]]) -> None:
        noun = "error" if len(problems) == 1 else "errors"
        lines = [f"{len(problems)} validation {noun} for {model}"]
        lines += [f"{field}\n  {message} [type={kind}]" for field, message, kind in problems]
        super().__init__("\n".join(lines))


class LateError(ConfigError):
    """A configuration error that vLLM meets only after the weights are loaded."""


class EngineDeadError(RuntimeError):
    """The engine core failed while serving; the process ends with exit code 1."""
