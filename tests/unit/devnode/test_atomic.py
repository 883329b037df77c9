"""The atomic writer: whole directories change at once, exactly as a kubelet's volumes do."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from devcluster.node.atomic import DATA, File, write


def read(directory: Path, names: list[str]) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in names}


def test_layout_is_a_kubelets(tmp_path: Path) -> None:
    assert write(tmp_path, {"a": File(b"1"), "sub/b": File(b"2", 0o600)}, 1_800_000_000.25)
    link = (tmp_path / DATA).readlink()
    assert str(link).startswith("..2027_01_15_08_00_00.")
    assert (tmp_path / "a").readlink() == Path("..data/a")
    assert (tmp_path / "sub").readlink() == Path("..data/sub")
    assert read(tmp_path, ["a", "sub/b"]) == {"a": b"1", "sub/b": b"2"}
    assert (tmp_path / "sub/b").stat().st_mode & 0o777 == 0o600


def test_same_content_changes_nothing(tmp_path: Path) -> None:
    files = {"a": File(b"1")}
    write(tmp_path, files, 1.0)
    before = (tmp_path / DATA).readlink()
    assert not write(tmp_path, files, 2.0)
    assert (tmp_path / DATA).readlink() == before
    assert write(tmp_path, {"a": File(b"1", 0o600)}, 3.0), "permission bits are content too"


def test_open_files_keep_what_they_had(tmp_path: Path) -> None:
    write(tmp_path, {"a": File(b"old")}, 1.0)
    with (tmp_path / "a").open("rb") as held:
        write(tmp_path, {"a": File(b"new")}, 1.0)
        assert held.read() == b"old"
    assert (tmp_path / "a").read_bytes() == b"new"


_NAMES = st.sampled_from(["a", "b", "c", "d/e", "d/f"])
_FILES = st.dictionaries(_NAMES, st.builds(File, st.binary(max_size=8), st.sampled_from([0o644, 0o400])), max_size=4)


@given(st.lists(_FILES, min_size=1, max_size=5))
def test_after_any_updates_the_directory_holds_the_last(updates: list[dict[str, File]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for number, files in enumerate(updates):
            write(directory, files, float(number))
        last = updates[-1]
        visible = {p.name for p in directory.iterdir() if not p.name.startswith("..")}
        assert visible == {path.split("/")[0] for path in last}
        assert read(directory, list(last)) == {path: file.data for path, file in last.items()}
        assert len([p for p in directory.iterdir() if p.name.startswith("..") and p.name != DATA]) == 1, "old ones go"
