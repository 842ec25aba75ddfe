"""`fedhaw export`: the model of a checkpoint, for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from fedhaw.cli.options import examples

EXAMPLES = examples(
    "fedhaw run --out trial && fedhaw export trial model.safetensors",
    "fedhaw export deployed/checkpoint.safetensors model.safetensors",
    'python -c "from safetensors.torch import load_file; '
    "print(load_file('model.safetensors').keys())\"",
)


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint, or the folder of a run.")],
    out: Annotated[Path, typer.Argument(help="The file to write.")],
) -> None:
    """Write the model of a checkpoint as safetensors, its arrays by their names."""
    from fedhaw.checkpoints.export import export as exported

    if checkpoint.is_dir():
        # A simulation keeps a file a round there, numbered; a Flower server one of this name.
        rounds = sorted((checkpoint / "checkpoints").glob("*.safetensors"))
        checkpoint = rounds[-1] if rounds else checkpoint / "checkpoint.safetensors"
    names = exported(checkpoint, out)
    print(f"{out}: {len(names)} arrays, {names[0]} to {names[-1]}")
