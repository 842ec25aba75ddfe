"""Names that come from files, made into names of files."""

from collections.abc import Container


def file_name(name: str, taken: Container[str] = ()) -> str:
    """A name that stays inside its folder, whatever a thing is called; a number if it is taken."""
    kept = "".join(c if c.isalnum() or c in "+-_. " else "_" for c in name).strip(". ")
    base = kept[:100] or "run"
    chosen, again = base, 2
    while chosen in taken:
        chosen, again = f"{base}-{again}", again + 1
    return chosen
