from __future__ import annotations

from pathlib import Path

import pytest

from school.agents.places import inside, read_plain, write_plain
from tests.support import write_tree


@pytest.mark.parametrize("deep", ["a", "a/b"])
def test_a_link_that_takes_the_place_of_a_folder_after_the_look_is_not_followed(
    tmp_path: Path, deep: str
) -> None:
    root, outside = tmp_path / "tree", tmp_path / "outside"
    write_tree(root, {"a/b/file": "mine"})
    write_tree(outside, {"file": "secret", "b/file": "secret"})
    place = inside("a/b/file", root)
    assert place is not None
    assert read_plain(place) == b"mine"
    (root / deep).rename(root / "moved")
    (root / deep).symlink_to(outside)
    for access in (
        read_plain,
        lambda found: write_plain(found, b"forged"),
        lambda found: write_plain(found.with_name("new"), b"x"),
    ):
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            access(place)
    assert sorted(path.read_text() for path in outside.rglob("*") if path.is_file()) == ["secret", "secret"]


def test_folders_are_made(tmp_path: Path) -> None:
    place = inside("x/y/new", tmp_path)
    assert place is not None
    assert write_plain(place, b"1") == 1
    assert write_plain(place, b"22") == 2
    assert (tmp_path / "x" / "y" / "new").read_bytes() == b"22"
