"""The face of TGI 3.3: `text-generation-launcher --model-id ... --speculate N`, its API."""

from __future__ import annotations

VERSION = "3.3.6"
ENGINE = f"TGI {VERSION}"
