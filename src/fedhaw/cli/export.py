"""`fedhaw export`: the model of a checkpoint, for other programs."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """Examples:

  fedhaw export trial/checkpoint.safetensors model.safetensors

  python -c "from safetensors.torch import load_file; print(load_file('model.safetensors').keys())"
"""


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint, or the folder of a run.")],
    out: Annotated[Path, typer.Argument(help="The file to write.")],
) -> None:
    """Write the model of a checkpoint as safetensors, its arrays by their names."""
    from fedhaw.checkpoints.export import export as exported

    if checkpoint.is_dir():
        checkpoint = checkpoint / "checkpoint.safetensors"
    names = exported(checkpoint, out)
    print(f"{out}: {len(names)} arrays, {names[0]} to {names[-1]}")
