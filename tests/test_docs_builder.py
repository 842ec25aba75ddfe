"""What fails the build of the site, does."""

from pathlib import Path

import pages
import pytest
import site_check
from pages import BrokenPage, Stage
from reference import PublicName, public_names, reference_pages
from signatures import calls, descriptions


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a page, a picture and a program, in place of this one."""
    docs = tmp_path / "docs"
    for file, text in {
        "docs/README.md": "# Home",
        "docs/images/a.svg": "<svg/>",
        "src/code.py": "print('```')",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "DOCS", docs)
    return tmp_path


def laid_out(repository: Path, text: str) -> str:
    file = repository / "docs" / "part" / "page.md"
    stage = Stage(repository / "out", frozenset({Path("reference/made.md")}))
    stage.write(Path("part/page.md"), text, file)
    return (repository / "out" / "part" / "page.md").read_text()


@pytest.mark.parametrize(
    ("link", "becomes"),
    [
        ("../README.md#top", "../index.md#top"),
        ("../images/a.svg", "../images/a.svg"),
        ("../../src/code.py", "../source/src-code.py.md"),
        ("../reference/made.md", "../reference/made.md"),
        ("https://example.org/a", "https://example.org/a"),
        ("#here", "#here"),
    ],
)
def test_links_arrive(repository: Path, link: str, becomes: str) -> None:
    assert laid_out(repository, f"a [b [c]]({link}) d") == f"a [b [c]]({becomes}) d"
    if not becomes.startswith(("http", "#", "../index", "../reference")):
        assert (repository / "out" / "part" / becomes).exists()


def test_a_link_to_nothing_is_refused(repository: Path) -> None:
    with pytest.raises(BrokenPage, match=r"docs/part/page\.md links to gone\.md"):
        laid_out(repository, "[a](gone.md)")
    assert laid_out(repository, "```md\n[a](gone.md)\n```\n") == "```md\n[a](gone.md)\n```\n"


def test_formulas_and_files(repository: Path) -> None:
    text = laid_out(
        repository, "is $`w_k`$\n\n```math\n\\sum_k w_k\n```\n\n<!-- file: src/code.py -->\n"
    )
    assert "<span><math" in text
    assert '<div class="math"><math' in text
    assert "````python\nprint('```')\n````" in text


@pytest.mark.parametrize("formula", [r"\gamma' = e^{\gamma'}", r"\lambda_{k+1}'", r"v_k' / v_k^2"])
def test_a_prime_stands_beside_its_letter_and_not_above_it(repository: Path, formula: str) -> None:
    text = laid_out(repository, f"is $`{formula}`$\n")
    assert text.count('</mi><mo lspace="0" rspace="0">&#x02032;</mo></mrow>') == formula.count("'")
    assert text.count("</msubsup>") == text.count("<msubsup>")


def test_a_call_with_an_unknown_keyword_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signatures.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nfedhaw.simulate(rule, alpha=1, optimizer='sgd', alhpa=1)\nFedHAW(etaa=1)\n"
        "unknown(a=1)\n```\n"
    )
    assert list(calls([page])) == [
        "page.md calls simulate with alhpa=, which it does not take.",
        "page.md calls FedHAW with etaa=, which it does not take.",
    ]


def test_every_public_name_is_described() -> None:
    assert not list(descriptions(public_names()))


def test_every_public_name_has_one_place() -> None:
    everything = "\n".join(reference_pages().values())
    assert "::: fedhaw.FedHAW\n" in everything
    assert "::: fedhaw.rules.FedHAW\n" not in everything
    assert "[`FedHAW`][fedhaw.FedHAW]" in everything


def test_a_site_is_looked_through(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="other.html#there">1</a><a href="other.html#gone">2</a><a href="no.html">3</a>'
        '<a href="https://example.org">4</a><script src="https://example.org/a.js"></script>'
    )
    (tmp_path / "other.html").write_text('<h1 id="there">a <w_k, d> b</h1>')
    assert list(site_check.broken_links(tmp_path)) == [
        "index.html loads https://example.org/a.js from elsewhere.",
        "index.html links to no.html, which is not there.",
        "index.html links to other.html#gone, whose anchor is not there.",
        "other.html does not show <w_k, d>; write it as code.",
    ]
    name = PublicName("fedhaw", "FedHAW", "fedhaw.FedHAW")
    assert list(site_check.missing_names(tmp_path, [name])) == [
        "fedhaw.FedHAW is not on reference/fedhaw.html."
    ]


def test_a_page_outside_the_navigation_is_found(tmp_path: Path) -> None:
    staged = tmp_path / "docs"
    staged.mkdir()
    for name in ("in.md", "deep.md", "out.md"):
        (staged / name).touch()
    (tmp_path / "mkdocs.yml").write_text("nav:\n  - A: in.md\n  - B:\n      - deep.md\n")
    assert list(site_check.outside_navigation(staged, tmp_path / "mkdocs.yml")) == [
        "out.md is not in the navigation; name it in mkdocs.yml."
    ]
