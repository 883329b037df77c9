"""Bad options are refused by field, value and remedy; an image may be a bare command."""

import pytest

from devcluster import ClusterOptions, DevClusterError, Image


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
