"""From a deployment's values to the manifests of its children: plain dicts, complete, labelled, owned and hashed.

Pure: the same input always gives the same manifests. Called by `reconcile`; nothing downstream of here sees text.
"""

from speculative_operator.render.environment import RenderError
from speculative_operator.render.inputs import Capabilities, RenderInput
from speculative_operator.render.manifests import http_route, notes_config, render, table_config

__all__ = ["Capabilities", "RenderError", "RenderInput", "http_route", "notes_config", "render", "table_config"]
