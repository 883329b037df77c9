"""Bad options are refused by field, value and remedy; good ones survive the way through JSON and YAML."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster import ClusterOptions, DevClusterError, Image

_WORDS = st.text(min_size=1, max_size=12)
_IMAGES = st.builds(
    Image, entrypoint=st.lists(_WORDS, min_size=1).map(tuple), env=st.dictionaries(_WORDS, _WORDS, max_size=2)
)


@given(
    st.builds(
        ClusterOptions,
        name=st.from_regex(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True),
        images=st.dictionaries(_WORDS, _IMAGES, max_size=3),
        accelerators=st.dictionaries(_WORDS, st.integers(0, 64), max_size=2),
        node=st.booleans(),
        prometheus=st.booleans(),
        scrape_interval_seconds=st.integers(1, 60),
        node_labels=st.dictionaries(_WORDS, _WORDS, max_size=2),
    )
)
def test_options_survive_json(options: ClusterOptions) -> None:
    assert ClusterOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


def test_image_may_be_a_bare_command() -> None:
    options = ClusterOptions.from_dict({"images": {"web": ["/usr/bin/python3", "-m", "http.server"]}})
    assert options.images["web"] == Image(("/usr/bin/python3", "-m", "http.server"))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"name": "Upper"}, "name: 'Upper'"),
        ({"name": ""}, "name: ''"),
        ({"name": "-a"}, "name: '-a'"),
        ({"name": "../a"}, "name: '../a'"),
        ({"name": "a" * 41}, "name: 'aaa"),
        ({"scrape_interval_seconds": 0}, "scrape_interval_seconds: 0"),
        ({"accelerators": {"nvidia.com/gpu": -1}}, "accelerators: nvidia.com/gpu has the negative count -1"),
        ({"images": {"web": []}}, "images: web has an empty entrypoint"),
        ({"images": {"web": "python"}}, "images: web is neither"),
        ({"images": {"web": {"command": ["a"]}}}, "images: web is neither"),
        ({"controllers": False}, "node: a node without controllers"),
        ({"gpus": 8, "nodes": 2}, "unknown cluster options: gpus, nodes"),
    ],
)
def test_bad_option_is_named_with_a_remedy(values: dict[str, object], told: str) -> None:
    with pytest.raises(DevClusterError) as caught:
        ClusterOptions.from_dict(values)
    assert told in caught.value.problem
    assert caught.value.remedy
