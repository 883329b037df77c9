"""Scalar types of the status. Used by `status` and its parts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_BANDS = 1024

Line = Annotated[str, Field(max_length=256)]
Sentence = Annotated[str, Field(max_length=4096)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(strict=True, json_schema_extra={"format": "int32"})]
Long = Annotated[int, Field(strict=True, json_schema_extra={"format": "int64"})]
Row = Annotated[tuple[Count, ...], Field(min_length=3, max_length=3)]
Rows = Annotated[tuple[Row, ...], Field(max_length=MAX_BANDS)]
