"""A few tests of the built wheel, outside the checkout: is everything in it that has to be?

The wheel is unpacked into a folder of its own, which comes before the checkout's own source; tests
are copied beside it. So a file that was forgotten in the wheel is missed here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "rules/test_golden.py",
    "experiments/test_letter.py",
    "reports/test_report.py",
    "test_public_names.py",
)


def main(folder: Path) -> int:
    """The exit code of the tests."""
    (wheel,) = sorted(folder.glob("fedhaw-*.whl"), key=lambda file: file.stat().st_mtime)[-1:]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        unpacked = place / "installed"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", unpacked, wheel], check=True)
        for folder_of_tests in ("tests", "docs"):  # some examples are tested as the pages have them
            kept = shutil.ignore_patterns("*.gz", "__pycache__")
            shutil.copytree(ROOT / folder_of_tests, place / folder_of_tests, ignore=kept)
        shutil.copyfile(ROOT / "pyproject.toml", place / "pyproject.toml")
        env = {**os.environ, "PYTHONPATH": str(unpacked)}

        def run(*command: str) -> int:
            return subprocess.run(
                [sys.executable, *command], cwd=place, env=env, check=False
            ).returncode

        where = f"import fedhaw, sys; sys.exit(not fedhaw.__file__.startswith({str(unpacked)!r}))"
        if run("-c", where):
            print("Not the wheel, but another fedhaw would be tested.", file=sys.stderr)
            return 1
        failed = run("-m", "fedhaw", "rules")
        return failed or run("-m", "pytest", "-q", *(f"tests/{test}" for test in TESTS))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
