"""The plan of a container's root directory, on an invented host."""

from collections.abc import Sequence

import pytest

from devcluster.node.rootfs import FRESH, Kind, Mount, Op, plan, resolve

TREE: dict[str, str | None] = {
    "/etc": None, "/etc/passwd": "file", "/etc/ssl": None, "/etc/ssl/cert.pem": "file", "/etc/hosts": "file",
    "/etc/mtab": "-> /proc/self/mounts", "/usr": None, "/usr/bin": None, "/usr/bin/python3": "file",
    "/bin": "-> usr/bin", "/var": None, "/var/run": "-> /run", "/var/tmp": None, "/run": None, "/run/old": None,
    "/tmp": None, "/tmp/link": "-> /etc", "/home": None, "/home/me": None, "/home/me/project": None, "/root": None,
    "/dev": None, "/proc": None, "/sys": None, "/srv": None, "/srv/repo": None, "/loop": "-> /loop", "/swap": "file",
}  # fmt: skip


class Invented:
    """A host made of TREE."""

    def kind(self, path: str) -> Kind | None:
        if path == "/":
            return "dir"
        if path not in TREE:
            return None
        what = TREE[path]
        if what is None:
            return "dir"
        return "link" if what.startswith("-> ") else "file"

    def link(self, path: str) -> str:
        return (TREE[path] or "").removeprefix("-> ")

    def entries(self, path: str) -> Sequence[str]:
        prefix = path.rstrip("/") + "/"
        return [p[len(prefix) :] for p in TREE if p.startswith(prefix) and "/" not in p[len(prefix) :]]


HOST = Invented()


def steps(*mounts: Mount, visible: Sequence[str] = (), hidden: Sequence[str] = ()) -> list[Op]:
    return list(plan(HOST, mounts, visible, hidden).ops)


def at(ops: list[Op], path: str) -> list[Op]:
    return [op for op in ops if op.path == path]


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/etc/speculative", "/etc/speculative"),
        ("/var/run/secrets/x", "/run/secrets/x"),
        ("/bin/tool", "/usr/bin/tool"),
        ("/tmp/link/a", "/tmp/link/a"),
        ("/etc/../usr//bin/.", "/usr/bin"),
        ("/loop/a", "/loop/a"),
        ("/", "/"),
    ],
)
def test_resolution_follows_the_host_except_where_the_container_is_on_its_own(path: str, resolved: str) -> None:
    assert resolve(HOST, path) == resolved


def test_host_is_bound_read_only_and_links_are_copied() -> None:
    ops = steps()
    assert ops[0] == Op("tmpfs", "/", "mode=755")
    assert Op("bind", "/usr", "/usr", read_only=True) in ops
    assert Op("link", "/bin", "usr/bin") in ops
    assert not at(ops, "/swap"), "files of the host's root are nobody's"
    for path in FRESH:
        assert [op.what for op in at(ops, path)] == ["tmpfs"]


def test_new_directory_shadows_its_parent_before_it_is_mounted() -> None:
    ops = steps(Mount("/etc/speculative/table", "/state/v", read_only=True))
    order = [op.path for op in ops]
    shadow = Op("tmpfs", "/etc", "mode=755")
    assert shadow in ops
    assert ops.index(shadow) < order.index("/etc/passwd") < order.index("/etc/speculative/table")
    assert at(ops, "/etc/passwd") == [Op("bind", "/etc/passwd", "/etc/passwd", read_only=True)]
    assert at(ops, "/etc/mtab") == [Op("link", "/etc/mtab", "/proc/self/mounts")]
    assert "/etc" in plan(HOST, [Mount("/etc/speculative/table", "/state/v")]).writable


@pytest.mark.parametrize(
    "target",
    [
        "/etc/hosts",
        "/etc/ssl",
        "/models",
        "/models/a/b",
        "/tmp/x",
        "/dev/termination-log",
        "/dev/shm",
        "/home/vllm",
        "/run/a",
    ],
)
def test_nothing_is_shadowed_where_a_mount_point_exists_or_can_be_made(target: str) -> None:
    ops = steps(Mount(target, "/state/v"))
    assert Op("tmpfs", "/etc", "mode=755") not in ops
    assert at(ops, target)[-1] == Op("bind", target, "/state/v")


def test_mounts_inside_mounts_come_later_and_shadow_nothing() -> None:
    ops = steps(Mount("/data/sub/deep", "/state/b"), Mount("/data", "/state/a"), Mount("/etc/ssl/new", "/state/c"))
    order = [op.path for op in ops]
    assert order.index("/data") < order.index("/data/sub/deep")
    assert Op("tmpfs", "/etc/ssl", "mode=755") in ops
    assert Op("tmpfs", "/etc", "mode=755") not in ops


def test_shadow_does_not_cover_what_was_placed_below_it() -> None:
    ops = steps(Mount("/etc/ssl", "/state/a"), Mount("/etc/x/y", "/state/b"))
    last_of_ssl = max(number for number, op in enumerate(ops) if op.path == "/etc/ssl")
    assert ops[last_of_ssl].source == "/state/a"
    assert ops.index(Op("tmpfs", "/etc", "mode=755")) < last_of_ssl


def test_needed_paths_stay_visible_in_fresh_directories() -> None:
    ops = steps(visible=["/home/me/project", "/srv/repo", "/nowhere"])
    assert at(ops, "/home/me/project") == [Op("bind", "/home/me/project", "/home/me/project", read_only=True)]
    assert not at(ops, "/srv/repo"), "seen already"
    assert not at(ops, "/nowhere")


def test_hidden_directories_are_covered_where_they_would_be_seen() -> None:
    assert at(steps(hidden=["/srv/repo"]), "/srv/repo")[0].what == "tmpfs"
    assert not at(steps(hidden=["/tmp/state"]), "/tmp/state")
    assert at(steps(visible=["/home/me"], hidden=["/home/me/project"]), "/home/me/project")[0].what == "tmpfs"


def test_a_volume_in_place_of_a_fresh_folder_stays_writable_below_a_read_only_root() -> None:
    assert "/tmp" not in plan(HOST, [Mount("/tmp", "/state/v")]).writable
    assert "/tmp" in plan(HOST, []).writable
