"""`python docs/builder` builds the site into build/site, strictly.

What fails the build: a link that leads nowhere, a page outside the navigation, a notebook with an
error, a public name without a description, a description that does not fit its signature, and an
example on a page that calls a function with arguments it does not have.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import signatures
from notebooks import FailedNotebook, run
from pages import DOCS, ROOT, BrokenPage, Stage, written_pages
from reference import public_names, reference_pages
from site_check import broken_links, missing_names, outside_navigation

STAGED, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"
NOTEBOOKS = tuple(sorted((DOCS / "tutorial").glob("*.py")))


def build(*, execute: bool) -> list[str]:
    """The site, and what is wrong with it, a sentence each."""
    reference = reference_pages()
    tutorial = {notebook: Path("tutorial") / f"{notebook.stem}.md" for notebook in NOTEBOOKS}
    problems = [
        *signatures.descriptions(public_names()),
        *signatures.calls(file for file, _ in written_pages()),
    ]
    stage = Stage(STAGED, frozenset({*reference, *tutorial.values()}))
    stage.lay_out()
    for place, text in reference.items():
        stage.write(place, text, DOCS / place)
    for notebook, place in tutorial.items():
        began = time.monotonic()
        stage.write(place, run(notebook, STAGED / place, executed=execute), DOCS / place)
        print(f"{notebook.name}: {time.monotonic() - began:.1f} s", flush=True)
    problems += outside_navigation(STAGED, ROOT / "mkdocs.yml")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        return [*problems, "The generator refused the pages; see above."]
    return [*problems, *broken_links(SITE), *missing_names(SITE, public_names())]


def main() -> int:
    """Exit code 0 if everything is as it should be."""
    parser = argparse.ArgumentParser(prog="docs/builder")
    parser.add_argument("--quick", action="store_true", help="show notebooks without running them")
    began = time.monotonic()
    try:
        problems = build(execute=not parser.parse_args().quick)
    except (BrokenPage, FailedNotebook) as error:
        problems = [str(error)]
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    print(f"{SITE}: {len(problems)} problems, {time.monotonic() - began:.0f} s")
    print("To look at it: python3 -m http.server --bind 127.0.0.1 --directory build/site")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
