"""The finished site, looked through for what a reader would stumble over."""

from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from reference import PublicName, place_of


class _Page(HTMLParser):
    """The anchors of a page, its links, what it loads, and text that was taken for HTML."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.swallowed: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not tag.replace("-", "").isalnum():
            self.swallowed.append(self.get_starttag_text() or tag)
        values = {name: value for name, value in attrs if value}
        if name := values.get("id") or (tag == "a" and values.get("name")):
            self.anchors.add(name)
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        elif "src" in values:
            self.loaded.add(values["src"])
        elif tag == "link" and values.get("rel") in {"stylesheet", "icon", "preload"}:
            self.loaded.add(values.get("href", ""))


def broken_links(site: Path) -> Iterator[str]:
    """Links and pictures that lead nowhere, or elsewhere when loaded, and text nobody sees."""
    pages = {file: _Page(file) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links begin at the root of wherever the site is put
        where = file.relative_to(site)
        for text in page.swallowed:
            yield f"{where} does not show {text}; write it as code."
        for link in sorted(page.loaded):
            if urlsplit(link).netloc:
                yield f"{where} loads {link} from elsewhere."
        for link in sorted(page.links | page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            anchor, page_there = unquote(parts.fragment), pages.get(target)
            if not target.exists():
                yield f"{where} links to {link}, which is not there."
            elif anchor and page_there is not None and anchor not in page_there.anchors:
                yield f"{where} links to {link}, whose anchor is not there."


def missing_names(site: Path, names: Iterable[PublicName]) -> Iterator[str]:
    """Public names that have no entry on the reference page where they should be described."""
    anchors: dict[Path, set[str]] = {}
    for dotted in sorted({name.shown_as for name in names}):
        file = site / place_of(dotted.rpartition(".")[0]).with_suffix(".html")
        if file not in anchors:
            anchors[file] = _Page(file).anchors if file.exists() else set()
        if dotted not in anchors[file]:
            yield f"{dotted} is not on {file.relative_to(site)}."


def outside_navigation(staged: Path, configuration: Path) -> Iterator[str]:
    """Pages that nobody would find, because mkdocs.yml does not name them."""
    tree = yaml.safe_load(configuration.read_text(encoding="utf-8"))
    named = set(_leaves(tree["nav"]))
    for file in sorted(staged.rglob("*.md")):
        place = file.relative_to(staged).as_posix()
        if not place.startswith("source/") and place not in named:
            yield f"{place} is not in the navigation; name it in mkdocs.yml."


def _leaves(node: object) -> Iterator[str]:
    match node:
        case str():
            yield node
        case list():
            for item in node:
                yield from _leaves(item)
        case dict():
            for item in node.values():
                yield from _leaves(item)
