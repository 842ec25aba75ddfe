"""Things by where they stand: loaded once, told apart, and refused in one sentence."""

import sys
from pathlib import Path

import pytest

import fedhaw
from fedhaw import names
from fedhaw.names import UnknownName
from fedhaw.rules import registry


@pytest.fixture(autouse=True)
def _path_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_a_file_loaded_twice_gives_the_same_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("class A:\n    pass\n")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper/mine.py").write_text("class A:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    first = names.load("mine.py:A")
    assert names.load(f"{tmp_path}/deeper/../mine.py:A") is first
    assert names.load("deeper/mine.py:A") is not first
    assert isinstance(first, type)
    assert sys.modules[first.__module__] in names.loaded_files()
    before = names.fingerprint("mine.py:A")
    (tmp_path / "mine.py").write_text("class A:\n    changed = True\n")
    assert names.load("mine.py:A") is not first
    assert names.fingerprint("mine.py:A") != before


def test_a_file_is_known_with_what_it_imports_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for k, folder in enumerate(("v1", "v2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("import os\nfrom near_one import K\n")
        (tmp_path / folder / "near_one.py").write_text("import near_two\nK = near_two.K\n")
        (tmp_path / folder / "near_two.py").write_text(f"import near_one\nK = {k + 1}\n")
    (tmp_path / "v1/os.py").write_text("")  # Python's own is imported; that is no mistake
    assert names.load("v1/mine.py:K") == 1
    before = names.fingerprint("v1/mine.py:K")
    with pytest.raises(
        UnknownName,
        match=r"v2/mine\.py cannot be loaded \(ImportError: its near_one\.py has the name of "
        r"v1/near_one\.py, in use; rename one\)",
    ):
        names.load("v2/mine.py:K")
    (tmp_path / "v1/unused.py").write_text("")
    assert names.fingerprint("v1/mine.py:K") == before
    (tmp_path / "v1/near_two.py").write_text("K = 3\n")
    assert names.fingerprint("v1/mine.py:K") != before


def test_a_module_of_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package/inside.py").write_text("import no_such_thing_at_all\n")
    (tmp_path / "some_package/whole.py").write_text("VALUE = 3\n")
    monkeypatch.chdir(tmp_path)
    assert names.load("some_package.whole:VALUE") == 3
    with pytest.raises(UnknownName, match=r"cannot be loaded \(ModuleNotFoundError: .*line 1 of"):
        names.load("some_package.inside:VALUE")
    with pytest.raises(UnknownName, match=r"There is no module some_package\.nowhere"):
        names.load("some_package.nowhere:VALUE")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.py:B", True), ("a/b.py:C", True), ("a.b:C", True), ("a.py", True), ("a.py:", True),
        ("fedavg", False), ("fedprox+adam", False), ("mnist-5k", False), ("x.npz", False),
        (r"C:\data\x.npz", False), ("", False),
    ],
)  # fmt: skip
def test_what_is_a_reference(name: str, expected: bool) -> None:
    assert names.is_reference(name) is expected


def test_every_listed_rule_is_exported_and_knows_its_name() -> None:
    for name, entry in registry.RULES.items():
        assert getattr(fedhaw, entry.cls.__name__) is entry.cls
        assert entry.cls.__name__ in fedhaw.__all__
        assert registry.name_of(entry.cls) == entry.folder == entry.key == name
        assert registry.find(f"fedhaw:{entry.cls.__name__}") is entry


def test_a_users_class_is_never_called_as_a_listed_rule() -> None:
    assert registry.name_of(type("FedAvg", (), {})) == "own-fedavg"
    assert registry.name_of(type("MyRule", (), {})) == "myrule"
