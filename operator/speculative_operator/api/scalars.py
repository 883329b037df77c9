"""Scalar types of the spec, each with the form it must have and the remedy said when it has not; last, those of the
status."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from speculative_operator.api.wire import VALIDATIONS, Text, literal

_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9._=@+-]*"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"

_HF = rf"hf://{_SEGMENT}(/{_SEGMENT})?"
_OCI = rf"oci://{_SUBDOMAIN}(:[0-9]{{1,5}})?(/[a-z0-9._-]+)+(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{{64}})?"
_S3 = rf"s3://[a-z0-9][a-z0-9.-]+(/{_SEGMENT})*/?"
_PVC = rf"pvc://{_SUBDOMAIN}(/{_SEGMENT})*/?"

ModelUri = Annotated[
    str,
    Text(
        f"{_HF}|{_OCI}|{_S3}|{_PVC}",
        "write one of hf://ORGANISATION/MODEL, oci://REGISTRY/REPOSITORY:TAG, s3://BUCKET/PREFIX or pvc://CLAIM/PATH",
        512,
    ),
]
_WORD = _SEGMENT.replace("@", "")
PromptsUri = Annotated[
    str,
    Text(
        rf"{_PVC}|hf://datasets(/{_WORD}){{3,}}",
        "write pvc://CLAIM/FILE.jsonl, or hf://datasets/ORGANISATION/NAME/FILE.jsonl with any version in revision",
        512,
    ),
]
Revision = Annotated[
    str, Text(r"[A-Za-z0-9][A-Za-z0-9._/-]*", "write a branch, a tag or a commit, such as main or 9c925d6", 128)
]
ServedName = Annotated[
    str,
    Text(r"[A-Za-z0-9][A-Za-z0-9._:/-]*", "use letters, digits and . _ : / -, beginning with a letter or digit", 253),
]
EngineWord = Annotated[
    str, Text(r"[A-Za-z0-9][A-Za-z0-9._-]*", "write one word as the engine spells it, such as bfloat16, fp8 or awq", 63)
]
Version = Annotated[
    str,
    Text(
        r"[0-9]+\.[0-9]+\.[0-9]+([.+-]?[0-9A-Za-z][0-9A-Za-z.+-]*)?", "write the engine's version, such as 0.32.0", 63
    ),
]
ImageReference = Annotated[
    str,
    Text(
        r"([A-Za-z0-9.-]+(:[0-9]{1,5})?/)?[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?",
        "write an image reference, such as vllm/vllm-openai:v0.32.0, without a scheme",
        512,
    ),
]
Argument = Annotated[str, Text(r"[^\x00]+", "an argument must hold at least one character; remove it", 4096)]
EnvName = Annotated[
    str, Text(r"[A-Za-z_][A-Za-z0-9_.-]*", "use letters, digits and _ . -, not beginning with a digit", 253)
]
LabelValue = Annotated[
    str,
    Text(
        r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?",
        "use letters, digits and . _ -, beginning and ending with a letter or digit",
        63,
    ),
]
ResourceName = Annotated[
    str,
    Text(
        rf"{_SUBDOMAIN}/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
        "write the extended resource of the device plug-in, such as nvidia.com/gpu or amd.com/gpu",
        128,
    ),
]
ObjectName = Annotated[str, Text(_SUBDOMAIN, "write the name of an object: lower-case letters, digits, - and .", 253)]
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]"
DailyWindow = Annotated[
    str,
    Text(
        f"{_TIME}-{_TIME}",
        "write two different times of the day in UTC, such as 22:30-04:00",
        11,
        cel="self.substring(0, 5) != self.substring(6)",
    ),
]
Product = Annotated[
    str,
    Text(
        r"[A-Za-z0-9]([A-Za-z0-9._ -]*[A-Za-z0-9])?",
        "write the accelerator's name, such as H100-SXM or the node's label NVIDIA-H100-80GB-HBM3",
        63,
    ),
]
Money = Annotated[
    str, Text(r"[0-9]{1,6}(\.[0-9]{1,6})?", 'write an amount without currency as a string, such as "5.00"', 13)
]

Endpoint = Annotated[
    str,
    Text(
        r"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?",
        "write a URL without credentials, such as https://hub.example.com",
        512,
    ),
]
Destination = Annotated[
    str,
    Text(r"[A-Za-z0-9.*\[:][A-Za-z0-9.:/\]-]*", "write a host, a domain or a network, such as .svc or 10.0.0.0/8", 253),
]

_DURATION = r"([0-9]{1,6}(\.[0-9]{1,6})?(us|ms|s|m))+"
Duration = Annotated[
    str,
    Text(
        _DURATION,
        "write a duration above 0 and up to 10m, with its unit, such as 40ms or 1.5s",
        32,
        cel="duration(self) > duration('0s') && duration(self) <= duration('10m')",
    ),
]


class _Quantity:
    """Metadata of a Kubernetes quantity: a whole number of bytes or a string with a suffix, above 0."""

    pattern = r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
    remedy = "write a quantity above 0, such as 1Mi"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._validate, core_schema.str_schema())

    def _validate(self, value: object) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or not re.fullmatch(self.pattern, text) or not re.search(r"[1-9]", text):
            raise PydanticCustomError("remedy", "{remedy}", {"remedy": self.remedy})
        return text

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = f"self.matches({literal(f'^({self.pattern})$')}) && self.matches('[1-9]')"
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            VALIDATIONS: [
                {
                    "rule": f"type(self) == int ? self > 0 : {text}",
                    "message": self.remedy,
                    "reason": "FieldValueInvalid",
                }
            ],
        }


Quantity = Annotated[str, _Quantity()]

_NO_PATH = r"(^|/)\.{1,2}(/|$)"

NodePath = Annotated[
    str,
    Text(
        r"(/[A-Za-z0-9._-]+)+",
        "write an absolute path without '.' and '..', such as /var/lib/speculative-cache",
        200,
        f"!self.matches({literal(_NO_PATH)})",
    ),
]


def whole(least: int, most: int) -> Any:
    """Metadata of a whole number between two bounds, both included; JSON numbers only."""
    return Field(strict=True, ge=least, le=most, json_schema_extra={"format": "int32"})


Parallelism = Annotated[int, whole(1, 1024)]

MAX_BANDS = 1024

Line = Annotated[str, Field(max_length=256)]
Sentence = Annotated[str, Field(max_length=4096)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(strict=True, json_schema_extra={"format": "int32"})]
Long = Annotated[int, Field(strict=True, json_schema_extra={"format": "int64"})]
Row = Annotated[tuple[Count, ...], Field(min_length=3, max_length=3)]
Rows = Annotated[tuple[Row, ...], Field(max_length=MAX_BANDS)]
