"""The jinja2 environment of all templates: every interpolated value comes out as JSON, which is valid YAML.

So no value can break out of its scalar, whatever a user wrote. Called by `manifests`, `jobs` and the targets; the
templates hold `for` and `if` and nothing else. An expression is always a whole scalar, map or list: strings are built
before, never in a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, TemplateError, Undefined

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where PyYAML was built with it: about ten times faster, same result."""
_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)")
"""One JSON escape; a pair of surrogates counts as one, and an escaped backslash is consumed whole."""


class RenderError(ValueError):
    """A value that cannot become a manifest. The message names the field, the value and the remedy.

    The one error that rendering raises; `reconcile` turns it into the condition reason RenderInvalid.
    """


def encode(value: Any) -> str:
    """`value` as one line of ASCII that YAML reads back as the same value.

    Characters beyond U+FFFF are written `\\UXXXXXXXX`: YAML would take JSON's surrogate pair for two characters.
    Raises RenderError for what Kubernetes objects cannot hold: undefined names, floats, unpaired surrogates.
    """
    if isinstance(value, Undefined):
        raise RenderError(f"a template uses {value._undefined_name!r}, which has no value")
    try:
        text = json.dumps(plain(value), ensure_ascii=True, allow_nan=False)
    except TypeError as error:
        raise RenderError(f"a template was given a value that is not JSON: {error}") from error
    return _ESCAPE.sub(_astral, text)


def plain(value: Any) -> Any:
    """Mappings and sequences of any kind as dict and list. Raises RenderError for floats: YAML 1.1 reads `1e+16` as
    a string, and no field of ours is one."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        raise RenderError(f"{value!r} is a floating-point number; write a whole number, or a quantity as a string")
    if isinstance(value, str) and not value.isascii():
        _refuse_half_characters(value)
    return value


def render_manifest(template: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that `templates/<template>.yaml.j2` gives for `values`. Raises RenderError."""
    try:
        manifest = yaml.load(_template(template).render(values), Loader=_LOADER)  # noqa: S506  (a safe loader)
    except (TemplateError, yaml.YAMLError) as error:
        raise RenderError(f"{template}: {error}") from error
    if not isinstance(manifest, dict):
        raise RenderError(f"{template}: the template gives no object")
    return manifest


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("speculative_operator.render"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  (YAML, made safe by `finalize`)
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=encode,
    )


@cache
def _template(name: str) -> Template:
    return _environment().get_template(f"{name}.yaml.j2")


def _astral(escape: re.Match[str]) -> str:
    high, low = escape.groups()
    if high is None:
        return escape.group()
    return f"\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00):08x}"


def _refuse_half_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RenderError(f"{text!r} holds half of a character (an unpaired surrogate); remove it") from error
