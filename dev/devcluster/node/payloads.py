"""What files a projected volume holds: pure functions from volume definition and API objects to file contents.

Called by ``volumes``; the objects and tokens are fetched there and handed in. Rules and messages are the kubelet's.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .atomic import File
from .fields import pod_field

_DEFAULT_MODE = 0o644
_DAY = 86400.0
_SINGLE = ("configMap", "secret", "downwardAPI")


class PayloadError(ValueError):
    """A volume cannot be filled; the text is what the pod's event says."""


@dataclass(frozen=True)
class TokenWish:
    """A service account token asked for by a projected volume. Empty audience: the API server's own."""

    audience: str
    seconds: int


@dataclass(frozen=True)
class Inputs:
    """All that payloads are made from. `objects` by (kind, name), None where absent; `tokens` by wish."""

    pod: Mapping[str, Any]
    address: str
    node_address: str
    objects: Mapping[tuple[str, str], Mapping[str, Any] | None]
    tokens: Mapping[TokenWish, str]


def still_good(issued: float, expires: float, now: float) -> bool:
    """May a token still be handed out? With a fifth of its life left and no older than a day, as a kubelet has it."""
    return now < expires - 0.2 * (expires - issued) and now < issued + _DAY


def is_projected(volume: Mapping[str, Any]) -> bool:
    """Is this volume made of files that the node writes and keeps up to date?"""
    return "projected" in volume or any(kind in volume for kind in _SINGLE)


def sources(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of a projected volume; a configMap, secret or downwardAPI volume is a projected one with one part."""
    if "projected" in volume:
        return list(volume["projected"].get("sources") or ())
    return [{kind: volume[kind]} for kind in _SINGLE if kind in volume]


def needed(volumes: Iterable[Mapping[str, Any]]) -> tuple[set[tuple[str, str]], set[TokenWish]]:
    """The (kind, name) of ConfigMaps and Secrets, and the tokens, that these volumes need."""
    objects, tokens = set(), set()
    for part in (part for volume in volumes if is_projected(volume) for part in sources(volume)):
        if "configMap" in part:
            objects.add(("ConfigMap", part["configMap"]["name"]))
        elif "secret" in part:
            objects.add(("Secret", _secret_name(part["secret"])))
        elif "serviceAccountToken" in part:
            tokens.add(_wish(part["serviceAccountToken"]))
    return objects, tokens


def files(volume: Mapping[str, Any], inputs: Inputs) -> dict[str, File]:
    """Relative path -> file of a projected volume. Raises PayloadError or fields.FieldError."""
    whole: Mapping[str, Any] = next((volume[kind] for kind in ("projected", *_SINGLE) if kind in volume), {})
    mode = whole.get("defaultMode", _DEFAULT_MODE)
    found: dict[str, File] = {}
    for part in sources(volume):
        found |= _part(part, inputs, mode)
    return found


def _part(part: Mapping[str, Any], inputs: Inputs, mode: int) -> dict[str, File]:
    if "configMap" in part:
        return _object_files("ConfigMap", part["configMap"]["name"], part["configMap"], inputs, mode)
    if "secret" in part:
        return _object_files("Secret", _secret_name(part["secret"]), part["secret"], inputs, mode)
    if "downwardAPI" in part:
        return _downward(part["downwardAPI"].get("items") or (), inputs, mode)
    if "serviceAccountToken" in part:
        wish = part["serviceAccountToken"]
        return {wish["path"]: File(inputs.tokens[_wish(wish)].encode(), mode)}
    raise PayloadError(
        f"projected source {sorted(part)} is not supported; use configMap, secret, downwardAPI or serviceAccountToken"
    )


def _wish(part: Mapping[str, Any]) -> TokenWish:
    return TokenWish(part.get("audience", ""), int(part.get("expirationSeconds", 3600)))


def _secret_name(source: Mapping[str, Any]) -> str:
    return str(source.get("secretName") or source.get("name"))


def _object_files(kind: str, name: str, source: Mapping[str, Any], inputs: Inputs, mode: int) -> dict[str, File]:
    optional = bool(source.get("optional"))
    found = inputs.objects.get((kind, name))
    if found is None:
        if optional:
            return {}
        raise PayloadError(f'{kind.lower()} "{name}" not found')
    entries = contents(kind, found)
    items: Sequence[Mapping[str, Any]] = source.get("items") or ()
    if not items:
        return {key: File(data, mode) for key, data in entries.items()}
    chosen = {}
    for item in items:
        if item["key"] in entries:
            chosen[item["path"]] = File(entries[item["key"]], item.get("mode", mode))
        elif not optional:
            raise PayloadError(f'{kind.lower()} "{name}" references non-existent key: {item["key"]}')
    return chosen


def contents(kind: str, found: Mapping[str, Any]) -> dict[str, bytes]:
    """The entries of a ConfigMap or Secret as bytes."""
    data = found.get("data") or {}
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    return {key: str(value).encode() for key, value in data.items()}


def _downward(items: Iterable[Mapping[str, Any]], inputs: Inputs, mode: int) -> dict[str, File]:
    found = {}
    for item in items:
        if "fieldRef" not in item:
            raise PayloadError("a downwardAPI item is not supported by the process node but for fieldRef")
        text = pod_field(inputs.pod, item["fieldRef"]["fieldPath"], inputs.address, inputs.node_address)
        found[item["path"]] = File(text.encode(), item.get("mode", mode))
    return found
