"""The command line: `compare`, `reproduce`, `run`, `report`, `watch`, `export`, `data`, `rules`.

A thin layer: flags are made into a recipe, the work is done by `fedhaw.experiments`. Nothing heavy
is imported before a command needs it, so `fedhaw --help` answers at once.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code; see `fedhaw.cli.exits`."""
    try:
        from fedhaw.cli.app import app
        from fedhaw.cli.exits import run_and_exit

        run_and_exit(app, arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "fedhaw").partition(".")[0]
        if missing == "fedhaw":
            raise
        # The command is there with the rules alone, but what it needs comes with an extra.
        print(f"The command line needs {missing}; run: pip install 'fedhaw[sim]'.", file=sys.stderr)
        sys.exit(2)
