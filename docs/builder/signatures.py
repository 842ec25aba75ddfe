"""What the pages say of functions and classes, held against the code."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import griffe
from pages import ROOT
from reference import PACKAGES, PublicName

from fedhaw.settings import SPELLINGS

_BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_SECTIONS = (
    griffe.DocstringSectionKind.parameters,
    griffe.DocstringSectionKind.attributes,
)


def descriptions(names: Iterable[PublicName]) -> Iterator[str]:
    """Public names that are not described, or whose arguments are not those described."""
    package = griffe.load("fedhaw", search_paths=[ROOT / "src"], resolve_aliases=True)
    for dotted in sorted({name.shown_as for name in names}):
        found: griffe.Object | griffe.Alias = package[dotted.removeprefix("fedhaw.")]
        if isinstance(found, griffe.Alias):
            found = found.final_target
        if not found.has_docstring:
            yield f"{dotted} has no docstring."
        elif isinstance(found, griffe.Class | griffe.Function):
            yield from _undescribed(dotted, found)


def _undescribed(dotted: str, found: griffe.Class | griffe.Function) -> Iterator[str]:
    sections = found.docstring.parse("google", warnings=False) if found.docstring else []
    described = {e.name.lstrip("*") for s in sections if s.kind in _SECTIONS for e in s.value}
    if not described:
        return
    taken = {p.name.lstrip("*") for p in found.parameters if p.name not in {"self", "cls"}}
    known = taken | set(found.all_members) if isinstance(found, griffe.Class) else taken
    if extra := sorted(described - known):
        yield f"{dotted} describes {', '.join(extra)}, which it does not have."
    if missing := sorted(name for name in taken - described if not name.startswith("_")):
        yield f"{dotted} does not describe {', '.join(missing)}."


def calls(pages: Iterable[Path]) -> Iterator[str]:
    """Calls on pages with keywords that the function they name does not take."""
    public = {
        name: getattr(import_module(package), name)
        for package in reversed(PACKAGES)
        for name in import_module(package).__all__
    }
    for page in pages:
        for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            try:
                tree = ast.parse(textwrap.dedent(found[2]))
            except SyntaxError:
                continue  # a fragment, or a shell's line among others
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                yield from _wrong_keywords(call, public, page)


def _wrong_keywords(call: ast.Call, public: Mapping[str, object], page: Path) -> Iterator[str]:
    match call.func:
        case ast.Attribute(value=ast.Name(id="fedhaw"), attr=name) | ast.Name(id=name):
            function = public.get(name)
        case _:
            return
    if not callable(function) or name not in public:
        return
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    allowed = {*parameters, *(SPELLINGS if name == "simulate" else ())}
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in allowed:
            where = page.relative_to(ROOT)
            yield f"{where} calls {name} with {keyword.arg}=, which it does not take."
