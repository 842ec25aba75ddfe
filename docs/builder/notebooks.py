"""The tutorial: scripts in the percent format, run as notebooks, shown as pages.

Each also becomes a `.ipynb` with its outputs, for who would rather change it than read it.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class FailedNotebook(Exception):
    """A notebook in which a cell raised an error."""


def run(script: Path, page: Path, *, executed: bool = True) -> str:
    """The Markdown of a script's page, after it was run in a folder of its own.

    Args:
        script: the notebook, as a percent script.
        page: where the page will lie; pictures and the notebook are put beside it.
        executed: run it; otherwise only its code is shown.

    Raises:
        FailedNotebook: one of its cells fails.
    """
    notebook = jupytext.read(script, fmt="py:percent")
    page.parent.mkdir(parents=True, exist_ok=True)
    if executed:
        client = NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],  # of sockets that stay on this machine
            resources={"metadata": {"path": str(script.parent)}},
        )
        try:
            client.execute()
        except CellExecutionError as error:
            raise FailedNotebook(f"{script.name}: {_COLOURS.sub('', str(error))}") from error
    nbformat.write(notebook, page.with_suffix(".ipynb"))
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code" and cell.source.strip():
            parts.append(f"```python\n{cell.source}\n```")
            for index, output in enumerate(_joined(cell.get("outputs", []))):
                name = f"{page.stem}-{number}-{index}.png"
                parts.append(_shown(output, page.parent / name))
    parts.append(f"[This page as a notebook]({page.stem}.ipynb){{ download }}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _joined(outputs: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """The outputs, with all that was printed in a row as one."""
    for kind, group in groupby(outputs, key=lambda output: output["output_type"]):
        if kind == "stream":
            yield {"output_type": kind, "text": "".join(str(output["text"]) for output in group)}
        else:
            yield from group


def _shown(output: Mapping[str, object], picture: Path) -> str:
    """An output as Markdown; a picture is written to a file."""
    if output["output_type"] == "stream":
        return _text(str(output["text"]))
    data = output.get("data", {})
    if not isinstance(data, Mapping):
        return ""
    if "text/html" in data:
        # Without empty lines, at which Markdown would take over again.
        html = re.sub(r"\n\s*\n", "\n", str(data["text/html"]))
        return f'<div class="output">\n{html}\n</div>'
    if "image/png" in data:
        picture.write_bytes(base64.b64decode(str(data["image/png"])))
        return f"![what the cell above draws]({picture.name})"
    return _text(str(data.get("text/plain", "")))


def _text(text: str) -> str:
    return f"```{{ .text .output }}\n{_COLOURS.sub('', text).rstrip()}\n```"
