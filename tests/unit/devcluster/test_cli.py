"""The command line's options, and errors told in words."""

import tempfile
from pathlib import Path

import pytest

from devcluster import ClusterOptions, Image, cli


def _options(*arguments: str) -> ClusterOptions:
    return cli._options(cli._parser().parse_args(["up", *arguments]))


def test_defaults_are_a_whole_cluster() -> None:
    assert _options() == ClusterOptions()


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("name: filed\nscrape_interval_seconds: 1\nimages: {web: [/bin/web]}\n")
    assert _options("--config", str(path)) == ClusterOptions(
        name="filed", scrape_interval_seconds=1, images={"web": Image(("/bin/web",))}
    )
    assert _options("--config", str(path), "--name", "given", "--no-prometheus").name == "given"


def test_no_controllers_means_no_node() -> None:
    assert _options("--no-controllers") == ClusterOptions(node=False, controllers=False)


def test_command_keeps_its_own_flags() -> None:
    parsed = cli._parser().parse_args(["run", "--name", "a", "--", "make", "-j", "2", "--name", "b"])
    assert (parsed.name, parsed.command) == ("a", ["make", "-j", "2", "--name", "b"])
    parsed = cli._parser().parse_args(["kubectl", "--", "get", "pods", "-o", "json"])
    assert parsed.command == ["get", "pods", "-o", "json"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["up", "--name", "No"], "name: 'No' is not a cluster name"),
        (["kubectl", "--name", "absent", "--", "get", "ns"], "no cluster 'absent' is running"),
        (["up", "--config", "absent.yaml"], "absent.yaml"),
    ],
)
def test_errors_are_told_without_a_traceback(
    arguments: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cli.main(arguments) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("text", "told"), [("- a\n", "is not a mapping"), ("a: [\n", "is not YAML")])
def test_unusable_file_is_named(tmp_path: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "options.yaml"
    path.write_text(text)
    assert cli.main(["up", "--config", str(path)]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert str(path) in said


def test_exit_codes_are_a_shells() -> None:
    assert [cli._exit_code(code) for code in (0, 3, -15)] == [0, 3, 143]
