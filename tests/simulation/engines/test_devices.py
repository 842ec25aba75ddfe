"""Everything that clients and evaluation compute with lies on one device."""

import subprocess
import sys
from pathlib import Path


def test_no_tensor_is_left_on_another_device() -> None:
    program = Path(__file__).with_name("elsewhere.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    left_behind = found.pop("left behind")
    assert left_behind.count("same device") == 2, "the device must notice, or it shows nothing"
    assert len(found) == 6
    assert set(found.values()) == {" | elsewhere"}
