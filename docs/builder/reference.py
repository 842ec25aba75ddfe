"""The reference: a page for every package, each public name once, at its shortest path."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import fedhaw


def _has_public_names(package: str) -> bool:
    return hasattr(import_module(package), "__all__")


PACKAGES = (
    "fedhaw",
    *(
        f"fedhaw.{module.name}"
        for module in iter_modules(fedhaw.__path__)
        if module.ispkg and _has_public_names(f"fedhaw.{module.name}")
    ),
    "fedhaw.rules.passes",
)
"""Every package whose names a user may import."""


@dataclass(frozen=True)
class PublicName:
    """A name that a user may import.

    Attributes:
        package: the package that offers it.
        name: in its `__all__`.
        shown_as: the dotted path under which it is described: of equal ones the shortest.
    """

    package: str
    name: str
    shown_as: str


def public_names() -> list[PublicName]:
    """Every name in the `__all__` of every package."""
    first: dict[tuple[str, int], str] = {}
    names = []
    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(module.__all__, key=str.lower):
            if name == "__version__":
                continue
            key = (name, id(getattr(module, name)))
            shown = first.setdefault(key, f"{package}.{name}")
            names.append(PublicName(package, name, shown))
    return names


def place_of(package: str) -> Path:
    """Where a package's page lies in the site."""
    return Path("reference") / f"{package.removeprefix('fedhaw.')}.md"


def reference_pages() -> dict[Path, str]:
    """The pages by their place."""
    names = public_names()
    return {place_of(package): _page(package, names) for package in PACKAGES}


def _page(package: str, names: list[PublicName]) -> str:
    own = [n for n in names if n.package == package and n.shown_as.startswith(f"{package}.")]
    here = [n for n in own if n.shown_as == f"{package}.{n.name}"]
    elsewhere = [n for n in names if n.package == package and n not in here]
    parts = [f"# `{package}`", (import_module(package).__doc__ or "").strip()]
    if elsewhere:
        links = ", ".join(f"[`{n.name}`][{n.shown_as}]" for n in elsewhere)
        parts.append(f"Also here: {links}.")
    parts += [f"::: {n.shown_as}" for n in here]
    return "\n\n".join(parts) + "\n"
