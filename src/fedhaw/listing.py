"""What fedhaw itself offers by name: whatever the files of a package declare.

    @listed(__name__, "bursty", "Gilbert-Elliott")
    def bursty(loss_rate: float, burst: float) -> BurstyUplink | None: ...

A line like this is all it takes: `Listing("uplink")` finds it in the files of `fedhaw/uplink`, and
names, help texts, completion and the documentation come from there. The listing reads the files as
text, and imports one only when the thing in it is asked for: the command line knows every name
without waiting for torch. See docs/adding-a-thing.md.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeVar, cast

T = TypeVar("T")

_DECLARATION = re.compile(r'listed\(\s*__name__,\s*"([^"]+)"(?:,\s*"([^"]+)")?,?\s*\)')

_THINGS: dict[tuple[str, str], object] = {}
"""What has been declared by the files imported so far, by module and name."""


def listed(module: str, name: str, words: str = "") -> Callable[[T], T]:
    """A declaration that a class, a function or an object goes by a name; it is left as it is.

    Args:
        module: `__name__`, of the file in which this stands.
        name: what it is called on the command line, in recipes and in histories.
        words: a few words about it, for help; for a rule, how its name is printed. Name and words
            are plain texts in double quotes, for they are read without Python.
    """

    def declare(thing: T) -> T:
        _THINGS[module, name] = thing
        return thing

    return declare


class Listing(Mapping[str, T]):
    """The things that the files of one package declare, by name, in alphabetical order.

    Args:
        package: below fedhaw, such as "simulation.engines".

    Attributes:
        words: a few words about each, by name.
    """

    def __init__(self, package: str) -> None:
        folder = Path(__file__).parent.joinpath(*package.split("."))
        declared: dict[str, tuple[str, str]] = {}
        for file in folder.glob("*.py"):
            for name, words in _DECLARATION.findall(file.read_text(encoding="utf-8")):
                declared[name] = words, f"fedhaw.{package}.{file.stem}"
        self.words = {name: declared[name][0] for name in sorted(declared)}
        self._modules = {name: module for name, (_, module) in declared.items()}

    def __getitem__(self, name: str) -> T:
        module = self._modules[name]
        import_module(module)
        return cast(T, _THINGS[module, name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, name: object) -> bool:
        return name in self.words

    def in_words(self) -> str:
        """Every name with its words, for a sentence: `letter (independently), hourly (...)`."""
        said = (f"{name} ({words})" if words else name for name, words in self.words.items())
        return ", ".join(said)
