"""From a class of declarations to its settings."""

import ast
import inspect
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args, get_type_hints

from fedhaw.listing import Listing
from fedhaw.settings.setting import Setting


def declared(of: type) -> dict[str, Setting]:
    """The settings that a class declares, by name, each with the sentence below it.

    Args:
        of: a TypedDict of `Annotated[type, Setting(...)]`; {known} in a sentence stands for the
            names that the setting may have.
    """
    sentences = _sentences(Path(inspect.getfile(of)))
    found = {}
    for name, hint in get_type_hints(of, include_extras=True).items():
        of_type, setting = get_args(hint)
        if setting.same_as is None:
            known = setting.known
            words = known.in_words() if isinstance(known, Listing) else ", ".join(known)
            setting = replace(setting, help=sentences[name].format(known=words))
        found[name] = setting.of_type(name, of_type)
    return found


@cache
def _sentences(file: Path) -> dict[str, str]:
    """The text below each field in the file's classes, which Python itself does not keep."""
    found = {}
    for declaration in ast.parse(file.read_text(encoding="utf-8")).body:
        for field, below in pairwise(getattr(declaration, "body", ())):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found
