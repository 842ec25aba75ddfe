"""Second names of a dataclass's fields: `optimizer` where torch's users would type it."""

import functools
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")

_SPELLINGS: dict[type, Mapping[str, str]] = {}


def also_spelt(**spellings: str) -> Callable[[type[T]], type[T]]:
    """A decorator of dataclasses, some of whose fields have a second name.

    A field may be given and read by either name; it is described and stored under its own.

    Args:
        spellings: the fields' own names, by the second ones.
    """

    def decorate(cls: type[T]) -> type[T]:
        made: Callable[..., None] = cls.__init__

        @functools.wraps(made)
        def init(self: T, *values: Any, **named: Any) -> None:
            made(self, *values, **with_own_names(cls, named))

        type.__setattr__(cls, "__init__", init)
        for second, own in spellings.items():
            setattr(cls, second, property(attrgetter(own), doc=f"The same as `{own}`."))
        _SPELLINGS[cls] = spellings
        return cls

    return decorate


def with_own_names(cls: type, values: Mapping[str, T]) -> dict[str, T]:
    """The values with every field by its own name.

    Raises:
        TypeError: a field is given by both of its names.
    """
    own = _SPELLINGS.get(cls, {})
    for second in values:
        if own.get(second) in values:
            raise TypeError(f"{cls.__name__} is given {second} and {own[second]}, which are one.")
    return {own.get(name, name): value for name, value in values.items()}
