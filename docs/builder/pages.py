"""The pages of the site: docs/ and what lies around it, laid out so that every link arrives.

A page is written to be read in the repository. On the way to the site
- a link to a file outside docs/ becomes a link to a page that shows the file,
- `<!-- file: PATH -->` becomes the file itself, as a block of code,
- a block ```math, a line $$...$$ and inline $`...`$ become MathML, which needs no script.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

# Pages that live elsewhere in the repository, where people look for them.
BORROWED = {ROOT / "CONTRIBUTING.md": "contributing.md", ROOT / "CHANGELOG.md": "changelog.md"}
LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".yml": "yaml", ".csv": "text"}

_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
_INCLUDE = re.compile(r"^<!-- file: (\S+) -->$", re.MULTILINE)
_FENCE = re.compile(r"^( *)(```+|~~~+)([^\n]*)\n(.*?)^\1\2[ ]*$\n?", re.MULTILINE | re.DOTALL)
_MATH_LINE = re.compile(r"^\$\$(.+)\$\$$", re.MULTILINE)
_INLINE_MATH = re.compile(r"\$`([^`]+)`\$")
_MI, _PRIME = "<mi>[^<]*</mi>", "<mi>&#x02032;</mi>"
_BESIDE = '<mo lspace="0" rspace="0">&#x02032;</mo>'


class BrokenPage(Exception):
    """A page that cannot be part of the site; the text says which, and why."""


def page_of(file: Path) -> Path | None:
    """Where a file's page lies in the site, or None if it is not a page."""
    if file in BORROWED:
        return Path(BORROWED[file])
    if not file.is_relative_to(DOCS) or file.is_relative_to(DOCS / "builder"):
        return None
    place = file.relative_to(DOCS)
    if place.suffix == ".py" and place.parts[0] == "tutorial":
        return place.with_suffix(".md")
    if place.suffix != ".md":
        return None
    return place.with_name("index.md") if place.name == "README.md" else place


def written_pages() -> Iterator[tuple[Path, Path]]:
    """Every Markdown file that is a page, and its place in the site."""
    for file in [*sorted(DOCS.rglob("*.md")), *BORROWED]:
        place = page_of(file)
        if place is not None:
            yield file, place


class Stage:
    """The folder in which the pages are laid out.

    Args:
        folder: where; what it held before is removed.
        generated: pages that are made later, which links may name.
    """

    def __init__(self, folder: Path, generated: frozenset[Path]) -> None:
        self.folder = folder
        self._generated = generated
        shutil.rmtree(folder, ignore_errors=True)

    def lay_out(self) -> None:
        """All written pages, their images and the files they show."""
        for file, place in written_pages():
            self.write(place, file.read_text(encoding="utf-8"), file)
        shutil.copytree(DOCS / "assets", self.folder / "assets")

    def write(self, place: Path, text: str, file: Path) -> None:
        """One page, whose links are those of a file at its place in the repository."""
        text = _INCLUDE.sub(lambda found: _shown(ROOT / found[1]), text)

        def prose(part: str) -> str:
            part = _LINK.sub(lambda m: m[1] + self._target(m[2], file, place) + m[3], part)
            part = _MATH_LINE.sub(lambda m: _displayed(m[1]), part)
            # In a span, since Markdown would make a block of <math> at the beginning of a line.
            return _INLINE_MATH.sub(lambda m: f"<span>{_mathml(m[1], 'inline')}</span>", part)

        def fence(indent: str, language: str, content: str, whole: str) -> str:
            if language.strip() != "math":
                return whole
            return f"{indent}{_displayed(content)}\n"

        self._put(place, _outside_fences(text, prose, fence))

    def _put(self, place: Path, text: str) -> None:
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _target(self, link: str, file: Path, place: Path) -> str:
        """What a page at `place` must link to where the file linked to `link`."""
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:|#", link) or (self.folder / place.parent / path).is_file():
            return link  # elsewhere, on this page, or made and put beside it
        wanted = Path(os.path.normpath(file.parent / path))
        there = page_of(wanted)
        made = Path(os.path.relpath(wanted, DOCS))
        if made in self._generated:
            there = made
        elif not wanted.exists():
            raise BrokenPage(f"{file.relative_to(ROOT)} links to {link}, which does not exist.")
        elif there is None and wanted.suffix in {".png", ".svg"}:
            there = wanted.relative_to(DOCS)
            (self.folder / there).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(wanted, self.folder / there)
        elif there is None:
            there = self._source_page(wanted)
        return os.path.relpath(there, place.parent) + (f"#{anchor}" if anchor else "")

    def _source_page(self, file: Path) -> Path:
        """A page that shows a file of the repository, or lists a folder's."""
        name = file.relative_to(ROOT)
        place = Path("source") / f"{name.as_posix().replace('/', '-')}.md"
        if file.is_dir():
            files = sorted(f.relative_to(file).as_posix() for f in file.rglob("*") if f.is_file())
            shown = "```text\n" + "\n".join(files) + "\n```\n"
        else:
            shown = _shown(file)
        self._put(place, f"---\nsearch: {{exclude: true}}\n---\n# `{name.as_posix()}`\n\n{shown}\n")
        return place


def _displayed(formula: str) -> str:
    return f'<div class="math">{_mathml(formula.strip(), "block")}</div>'


def _mathml(formula: str, display: str) -> str:
    # A prime is small and high in every font; as a superscript, too, it would fly away.
    math = convert(formula, display=display)
    math = re.sub(rf"<msup>({_MI}){_PRIME}</msup>", rf"<mrow>\1{_BESIDE}</mrow>", math)
    apart = rf"<msubsup>({_MI})((?:(?!<msubsup>).)*?){_PRIME}</msubsup>"
    return re.sub(apart, rf"<msub><mrow>\1{_BESIDE}</mrow>\2</msub>", math)


def _shown(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    return f"````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n````"


def _outside_fences(
    text: str, prose: Callable[[str], str], fence: Callable[[str, str, str, str], str]
) -> str:
    parts, end = [], 0
    for found in _FENCE.finditer(text):
        parts += [prose(text[end : found.start()])]
        parts += [fence(found[1], found[3], found[4], found[0])]
        end = found.end()
    return "".join([*parts, prose(text[end:])])
