"""SpeculativeDeployments with any field at its borders and beyond, made from the definition itself; and what the
operator makes of one, without I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st
from tests.contract.objects import GOOD, specdep

from speculative_operator.api.convert import SpecError, to_domain
from speculative_operator.api.crd import crd
from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.reconcile.tick import invalid, tick
from speculative_operator.reconcile.world import World
from speculative_operator.render import Capabilities
from speculative_operator.render.payload import is_payload

NOW = 1_800_000_000.0
Schema = Mapping[str, Any]
Path = tuple[str | int, ...]

WORDS = (
    "", " ", "a", "A", "no", "null", "~", "0", "-1", "1e3", "NaN", "true", "../../etc/passwd", "/", "//", "-",
    "--model", "a b",
    "a\nb", "a\tb", "\x00", "\x1b[31m", "\u007f", "é", "e\u0301", "漢字", "🙂", "\u202eabc", "\ufeff", "{{ 7*7 }}",
    "{% raw %}",
    "${HOME}", "$(HOME)", "%s%n", "'\"`;|&", "<b>", "\\", "a" * 64, "a" * 254, "ä" * 300, "a: b", "- a", "#",
    "&x", "*x", "!!int",
    "hf://a/b", "hf://a/b?c#d", "hf://../..", "oci://q.io/a:b", "s3://b/k", "pvc://w/q", "pvc://w/../q", "file:///etc",
    "http://a", "https://u:p@h/x?y", "1Gi", "-1Gi", "1e400", "999999999999999999999Ei", "0.5", "1.5h", "0s", "10m", "٣",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 7, 64, 65, 1023, 1024, 65535, 65536, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
TEXTS = st.sampled_from(WORDS) | st.text(max_size=12)
ANY = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
POD_WORDS = st.sampled_from(
    ["containers", "initContainers", "volumes", "name", "engine", "image", "env", "value", "valueFrom", "args",
     "command",
     "ports", "containerPort", "resources", "limits", "requests", "cpu", "memory", "nvidia.com/gpu", "volumeMounts",
     "mountPath", "subPath", "emptyDir", "hostPath", "path", "nodeSelector", "tolerations", "affinity",
     "securityContext",
     "serviceAccountName", "terminationGracePeriodSeconds", "startupProbe", "livenessProbe", "readinessProbe",
     "lifecycle",
     "$patch", "replace", "delete", "runtimeClassName", "shmSize", "dshm", "restartPolicy", "schedulingGates"]
)  # fmt: skip
NESTED = st.recursive(
    ANY | POD_WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(POD_WORDS | TEXTS, inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["engine", "engine", "sidecar", "fetch-weights"]) | ANY},
        optional=dict.fromkeys(("image", "env", "args", "resources", "volumeMounts", "ports", "startupProbe"), NESTED),
    )
    | NESTED,
    max_size=3,
)
PODS = NESTED | st.dictionaries(POD_WORDS, NESTED, max_size=4) | st.fixed_dictionaries({"containers": CONTAINERS})
LEVELS = st.integers(1, 120).map(lambda levels: json.loads('{"a":[' * levels + "1" + "]}" * levels))


def spec_schema() -> Schema:
    """Of `spec`."""
    found: Schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def fields(schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Every field below `schema`, one item of each list and map included."""
    inner: dict[str | int, Schema] = dict(schema.get("properties") or {})
    if "items" in schema:
        inner[0] = schema["items"]
    if isinstance(schema.get("additionalProperties"), Mapping):
        inner["key"] = schema["additionalProperties"]
    for name, field in inner.items():
        yield (*path, name), field
        yield from fields(field, (*path, name))


ANNOTATIONS = (names.ANNOTATION_PAUSED, names.ANNOTATION_REPIN, names.ANNOTATION_ADOPT)
FIELDS = tuple(fields(spec_schema()))
TEMPLATES = tuple(one for one in FIELDS if one[0][0] in ("template", "engine"))
"""What reaches the pod as it is written."""


def values(schema: Schema, *, right: bool) -> st.SearchStrategy[Any]:
    """Of the right type: `right` ones as far as the schema alone can tell, else those at its borders and beyond."""
    return _values(json.dumps(schema, sort_keys=True), right)


@cache
def _values(text: str, right: bool) -> st.SearchStrategy[Any]:
    schema = json.loads(text)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return PODS | LEVELS
    if schema.get("x-kubernetes-int-or-string") or "anyOf" in schema:
        return st.sampled_from(["1Gi", "500Mi", 5] if right else WORDS)
    kinds = {"integer": _whole, "number": _whole, "string": _text, "array": _list, "object": _object}
    kind = kinds.get(schema.get("type"))
    return kind(schema, right) if kind is not None else st.booleans()


def _whole(schema: Schema, right: bool) -> st.SearchStrategy[Any]:
    least, most = schema.get("minimum", 0), schema.get("maximum", 2**31)
    if right:
        return st.sampled_from([least, most, min(least + 1, most)]) | st.integers(least, most)
    return st.sampled_from([least - 1, most + 1, *NUMBERS])


def _text(schema: Schema, right: bool) -> st.SearchStrategy[Any]:
    words, longest = schema.get("enum") or (), min(schema.get("maxLength", 300), 3000)
    if words:
        return st.sampled_from(words if right else [str(word).lower() for word in words] + [f"{words[0]} "])
    if "pattern" in schema:
        fits = st.from_regex(schema["pattern"], fullmatch=True, alphabet=None if right else st.characters())
        fits = fits.filter(lambda text: len(text) <= longest)
        return fits if right else st.builds(lambda one, other: one + other, fits, TEXTS)
    return TEXTS | st.sampled_from(["a" * (longest + (not right)), "é" * longest])


def _list(schema: Schema, right: bool) -> st.SearchStrategy[Any]:
    item, most = values(schema["items"], right=right), min(schema.get("maxItems", 3), 70)
    few = st.lists(item, min_size=schema.get("minItems", 0) if right else 0, max_size=min(3, most))
    return few if right else few | item.map(lambda one: [one] * (most + 1))


def _object(schema: Schema, right: bool) -> st.SearchStrategy[Any]:
    if isinstance(schema.get("additionalProperties"), Mapping):
        keys = st.sampled_from(["key", "example.com/key", "a.b-c_d"]) if right else TEXTS
        return st.dictionaries(keys, values(schema["additionalProperties"], right=right), max_size=3)
    required = schema.get("required") or ()
    inner = {name: values(one, right=right) for name, one in (schema.get("properties") or {}).items()}
    optional = {name: one for name, one in inner.items() if name not in required}
    return st.fixed_dictionaries({name: inner[name] for name in required}, optional=optional)


@st.composite
def fuzzed(draw: st.DrawFn) -> dict[str, Any]:
    """A good object of which some fields are at their borders, beyond them, or of another type."""
    body = specdep(GOOD[draw(st.sampled_from(sorted(GOOD)))])
    for _ in range(draw(st.integers(1, 3))):
        path, schema = draw(st.sampled_from(FIELDS) | st.sampled_from(TEMPLATES))
        how = draw(st.integers(0, 7))
        body["spec"] = changed(body["spec"], path, draw(ANY if how == 7 else values(schema, right=how < 5)))
    asked = draw(st.dictionaries(st.sampled_from(ANNOTATIONS), TEXTS | st.just("true"), max_size=1))
    return {**body, "metadata": {**body["metadata"], "annotations": asked}}


def changed(node: Any, path: Path, value: Any) -> Any:
    """`node` with `value` at `path`, whatever was on the way."""
    if not path:
        return value
    first, *rest = path
    if isinstance(first, int):
        items = list(node) if isinstance(node, list) else []
        return [changed(items[0] if items else None, tuple(rest), value), *items[1:]]
    known = dict(node) if isinstance(node, Mapping) else {}
    return {**known, first: changed(known.get(first), tuple(rest), value)}


WORLDS = (
    Capabilities(),
    Capabilities(
        pod_monitor=True,
        assigns_uids=False,
        check_pairs=True,
        job_image="speculative-operator:1",
        node_folders=("/var", "/data", "/mnt"),
    ),
)


@dataclass(frozen=True)
class Made:
    """What the operator makes of an object."""

    refused: str
    """Why it is not served; empty where it is."""
    manifests: tuple[Mapping[str, Any], ...]
    statuses: tuple[Mapping[str, Any], ...]


def tick_twice(body: Mapping[str, Any]) -> Made:
    """Two ticks of the object in each of WORLDS. Raises what no object should make them raise."""
    try:
        spec = to_domain(body)
    except SpecError as problem:
        why = str(problem)
        clear = problem.field.startswith(("spec", "metadata.name")) and problem.remedy and why.startswith(problem.field)
        return Made(why if clear else f"unclear: {why}", (), (_sound(invalid(body, why, NOW).status),))
    manifests, statuses = [], []
    for capabilities in WORLDS:
        first = tick(World(spec, {}, {}, (), capabilities=capabilities), None, None, NOW)
        applied = [action.manifest for action in first.actions if isinstance(action, ApplyChild)]
        held = {(one["kind"], one["metadata"]["name"]): _stored(one) for one in applied if not is_payload(one)}
        payloads = {one["metadata"]["name"]: one["data"] for one in applied if is_payload(one)}
        world = World(spec, _sound(first.status), held, (), capabilities=capabilities, payloads=payloads)
        again = tick(world, first.memory, None, NOW + 10.0)
        json.dumps(applied, allow_nan=False).encode()
        manifests += applied
        statuses += [_sound(first.status), _sound(again.status)]
    return Made("", tuple(manifests), tuple(statuses))


def _stored(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": manifest["metadata"]["name"], "generation": 1}}


def _sound(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status that can be written: JSON without NaN, and conditions of the length that is taken."""
    found: dict[str, Any] = json.loads(json.dumps(status, allow_nan=False))
    assert found["conditions"]
    for condition in found["conditions"]:
        assert condition["reason"]
        assert len(condition.get("message", "").encode()) <= 32768
    return found
