"""The jinja2 environment of all templates: every interpolated value takes its place as it is, and is never text.

A template is rendered with `$0`, `$1`, ... in place of the values, parsed as YAML, and the values are put there. So no
value can break out of its place, whatever a user wrote, and templates whose loops run alike are parsed once. Called by
`manifests`, `jobs` and the targets; the templates hold `for`, `if` and `include` and nothing else. An expression is
always a whole scalar, map or list, or the key of a map: strings are built before, never in a template.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, TemplateError, Undefined, pass_context
from jinja2.runtime import Context

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where PyYAML was built with it: about ten times faster, same result."""
_VALUES = "values_in_their_order"
"""Variable of every template: the values that were interpolated so far."""
_SHAPES = 512
"""Most rendered templates that are kept parsed; a fleet has a few dozen."""


class RenderError(ValueError):
    """A value that cannot become a manifest. The message names the field, the value and the remedy.

    The one error that rendering raises; `reconcile` turns it into the condition reason RenderInvalid.
    """


def plain(value: Any) -> Any:
    """A copy of a value as Kubernetes objects can hold it, with mappings and sequences of any kind as dict and list.

    Raises RenderError for undefined names and floats: no field of ours is one.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        raise RenderError(f"{value!r} is a floating-point number; write a whole number, or a quantity as a string")
    if isinstance(value, Undefined):
        raise RenderError(f"a template uses {value._undefined_name!r}, which has no value")
    if value is not None and not isinstance(value, int):
        raise RenderError(f"a template was given a value that is not JSON: {value!r}")
    return value


def render_manifest(template: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that `templates/<template>.yaml.j2` gives for `values`. Raises RenderError."""
    given: list[Any] = []
    try:
        manifest = _fill(_parse(_template(template).render({**values, _VALUES: given})), given)
    except (TemplateError, yaml.YAMLError) as error:
        raise RenderError(f"{template}: {error}") from error
    if not isinstance(manifest, dict):
        raise RenderError(f"{template}: the template gives no object")
    return manifest


@pass_context
def _note(context: Context, value: Any) -> str:
    """The place of `value` in the text."""
    given: list[Any] = context[_VALUES]
    given.append(plain(value))
    return f"${len(given) - 1}"


@lru_cache(_SHAPES)
def _parse(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  (a safe loader)


def _fill(node: Any, given: list[Any]) -> Any:
    """A copy of `node`, which nobody may change, with the values of `given` in their places."""
    if isinstance(node, str):
        return given[int(node[1:])] if node[:1] == "$" else node
    if isinstance(node, dict):
        return {_fill(key, given): _fill(item, given) for key, item in node.items()}
    return [_fill(item, given) for item in node] if isinstance(node, list) else node


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("speculative_operator.render"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  (values are never text)
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_note,
    )


@cache
def _template(name: str) -> Template:
    return _environment().get_template(f"{name}.yaml.j2")
