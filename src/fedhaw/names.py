"""Things by name: what fedhaw lists itself, and a user's own by where it stands.

A user's own thing is written `package.module:Name` or `path/to/file.py:Name`. Modules are looked
for where Python looks, and in the current folder; a file may import what lies beside it.
"""

import ast
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from fedhaw.errors import FedhawError, named, shown

T = TypeVar("T")

OWN = "your own as package.module:Name or file.py:Name"
"""How a user's own thing is named, for the end of a sentence."""

PLACES: dict[str, str] = {}
"""By source file, how the user wrote the place of a module of theirs that was loaded."""


class UnknownName(FedhawError, ValueError):
    """The place of a user's own thing where there is none, or none that works."""


def no_such(kind: str, name: str, known: Sequence[str], also: str = OWN) -> str:
    """The sentence on a name that is not listed.

    Args:
        kind: what it was to be the name of, such as "rule".
        name: what was given.
        known: every listed name, in order.
        also: what may be given besides.
    """
    return f"There is no {kind} {shown(name)}; {advice(name, known, also)}"


def advice(name: str, known: Sequence[str], also: str = "") -> str:
    """The end of a sentence on an unknown name: the nearest known one, or all of them."""
    close = difflib.get_close_matches(name.lower(), known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"choose one of {', '.join(known)}{f', or {also}' if also else ''}."


def is_reference(name: str) -> bool:
    """Whether a name says where a user's own thing stands, instead of being one of a list."""
    place, colon, attribute = name.rpartition(":")
    if name.endswith(".py") or (colon and place.endswith(".py")):
        return True
    return all(part.isidentifier() for part in (*place.split("."), attribute))


def load(reference: str) -> object:
    """What stands at a place; the same thing each time, as long as a file's content is the same.

    Args:
        reference: `package.module:Name` or `file.py:Name`.

    Raises:
        UnknownName: there is no such module, file or name in it, or it cannot be imported.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name.isidentifier():
        raise UnknownName(
            f"{shown(reference)} does not say what in the file is meant; write file.py:Name."
        )
    module = _load_file(place) if place.endswith(".py") else _load_module(place)
    found: object = getattr(module, name, None)
    if found is None:
        known = [key for key in vars(module) if not key.startswith("_")]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "check the spelling."
        raise UnknownName(f"There is no {name} in {place}; {hint}")
    return found


def make(reference: str, kind: type[T], **offered: object) -> T:
    """A user's own thing of some kind, or what their function or class makes.

    Args:
        reference: where it stands.
        kind: what it must be, or return.
        offered: arguments; the function is given those whose names are among its parameters.

    Raises:
        UnknownName: it cannot be loaded or called, or something else comes out.
    """
    found = load(reference)
    if isinstance(found, kind) and not isinstance(found, type) and not inspect.isroutine(found):
        return found
    if not callable(found):
        raise UnknownName(
            f"{reference} is of type {type(found).__name__}; it must be a {kind.__name__}, or a "
            "function that returns one."
        )
    try:
        made: object = found(**accepted(found, offered))
    except FedhawError:
        raise
    except (Exception, SystemExit) as error:
        raise UnknownName(f"{reference} failed ({_reason(error)}); mend it.") from error
    if not isinstance(made, kind):
        raise UnknownName(
            f"{reference} returned a {type(made).__name__}; it must return a {kind.__name__}."
        )
    return made


def accepted(
    function: Callable[..., object], offered: Mapping[str, object], first: int = 0
) -> dict[str, object]:
    """Those of the arguments offered whose names are among a function's parameters.

    Args:
        function: that is to be called.
        offered: values by name.
        first: how many leading parameters are filled otherwise.
    """
    try:
        parameters = list(inspect.signature(function).parameters)[first:]
    except ValueError:  # some functions written in C do not tell
        parameters = []
    return {name: value for name, value in offered.items() if name in parameters}


def loaded_files() -> tuple[ModuleType, ...]:
    """The modules made of single files, which no other process can import by their names."""
    return tuple(
        module
        for module in list(sys.modules.values())
        if PLACES.get(getattr(module, "__file__", None) or "", "").endswith(".py")
    )


def fingerprint(reference: str) -> str:
    """12 hex digits of the file that a user's own thing was loaded from, and what it imports there.

    Raises:
        UnknownName: as `load`.
    """
    load(reference)
    place = reference.rpartition(":")[0]
    file = str(_path(place)) if place.endswith(".py") else sys.modules[place].__file__
    if not file:
        return ""
    beside = _imported_beside(Path(file)) if file.endswith(".py") else {}
    return _digest(*(path.read_bytes() for path in (Path(file), *beside.values())))


def blame(error: BaseException) -> str | None:
    """The sentence on an error that came out of a user's own code, or None if it did not."""
    return f"Your own code failed ({_reason(error)}); mend it." if _own_lines(error) else None


def _load_file(place: str) -> ModuleType:
    path = _path(place)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnknownName(f"{place} cannot be read: {error.strerror or error}.") from error
    stem = path.stem.replace(".", "_")
    # The name tells contents apart, so that a file that was changed is loaded anew.
    name = f"{stem}_{_digest(content)}"
    if name in sys.modules and sys.modules[name].__file__ != str(path):
        name = f"{stem}_{_digest(content, bytes(path))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # what ends in .py has a loader
    assert spec.loader is not None
    _also_look_in(path.parent)
    module = importlib.util.module_from_spec(spec)
    PLACES[str(path)] = place
    sys.modules[name] = module
    try:
        _refuse_namesakes(path)
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, (Exception, SystemExit)):
            raise UnknownName(f"{place} cannot be loaded ({_reason(error)}); mend it.") from error
        raise
    return module


def _load_module(place: str) -> ModuleType:
    _also_look_in(Path.cwd())
    try:
        spec = importlib.util.find_spec(place)
        if spec is not None and spec.origin:
            PLACES[spec.origin] = place
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (place == missing or place.startswith(f"{missing}.")):
            raise UnknownName(
                f"There is no module {missing} for {place}; install it, or run in its folder."
            ) from error
        raise UnknownName(f"{place} cannot be loaded ({_reason(error)}); mend it.") from error


def _imported_beside(path: Path) -> dict[str, Path]:
    """The files beside a source file that it imports, or that these import, by module."""
    found: dict[str, Path] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        for node in ast.walk(ast.parse(file.read_bytes(), str(file))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                beside = path.with_name(f"{name}.py")
                if name not in found and beside != path and beside.is_file():
                    found[name] = beside
                    waiting.append(beside)
    return dict(sorted(found.items()))


def _refuse_namesakes(path: Path) -> None:
    """A check that what a file imports from beside it is not shadowed by another own file's.

    Python keeps one module of a name, so that the file would compute with the other's.
    """
    for name, beside in _imported_beside(path).items():
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and (other := _place(spec.origin)) and Path(spec.origin) != beside:
            raise ImportError(f"its {beside.name} has the name of {other}, in use; rename one")


def _path(place: str) -> Path:
    return Path(place).expanduser().resolve()


def _also_look_in(folder: Path) -> None:
    """A further folder in which Python finds modules, after everywhere else."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _reason(error: BaseException) -> str:
    """The error's kind and first line, and where in the user's own code it arose."""
    text = named(error)
    if isinstance(error, SyntaxError):  # it says itself in which file and line
        return text
    own = _own_lines(error)
    return f"{text}, {own[-1]}" if own else text


def _own_lines(error: BaseException) -> list[str]:
    """The lines of the user's own code that an error came through, the one where it arose last."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.lineno, _place(frame.filename)) for frame in frames]
    return [f"line {line} of {place}" for line, place in places if place]


def _place(file: str) -> str | None:
    """How the user writes a source file that they named, or one beside it; None for all others."""
    if file in PLACES:
        return PLACES[file]
    path = Path(file)
    if Path(__file__).parent in path.parents:  # what is ours may be named, too, as fedhaw:FedAvg
        return None
    beside = (place for own, place in PLACES.items() if Path(own).parent == path.parent)
    return next((str(Path(place).with_name(path.name)) for place in beside), None)


def _digest(*contents: bytes) -> str:
    return hashlib.blake2b(b"".join(contents), digest_size=6).hexdigest()
