"""A run that is started again, from its checkpoint, until it is finished.

    python service/supervise.py . field -c 'out="/var/lib/fedhaw/trial"'

`flwr run --stream` ends with exit code 0 even when the run failed, so a supervisor of processes
notices nothing. This one asks the SuperLink what became of the run. What follows the script's name
goes to `flwr run`; the app must keep a checkpoint, as this one does with `out`.

Exit code 0 when the run is completed or was stopped by somebody, 1 when it failed ten times in a
row without a minute in between.
"""

import json
import subprocess
import sys
import time

ASK_EVERY = 5.0
RESTART_AFTER = 10.0
GIVE_UP_AFTER = 10
LONG_ENOUGH = 60.0


def main() -> int:
    """Start the run, watch it, and start it again while it fails."""
    failures = 0
    while failures < GIVE_UP_AFTER:
        begin = time.monotonic()
        status = outcome(sys.argv[1:])
        if status in ("finished:completed", "finished:stopped"):
            say(status)
            return 0
        failures = 1 if time.monotonic() - begin > LONG_ENOUGH else failures + 1
        say(f"{status}; starting again in {RESTART_AFTER:g} s ({failures} of {GIVE_UP_AFTER})")
        time.sleep(RESTART_AFTER)
    return 1


def outcome(arguments: list[str]) -> str:
    """What became of a run, once it is over; "not started" when the SuperLink did not take it."""
    started = flwr("run", *arguments)
    run = started.get("run-id")
    if run is None:
        return f"not started: {started}"
    say(f"run {run} is started")
    link = arguments[1:2]  # the app's folder comes first, then the SuperLink's name
    while True:
        time.sleep(ASK_EVERY)
        runs = flwr("list", *link, "--run-id", str(run)).get("runs")
        if not isinstance(runs, list) or not runs:
            return "lost: the SuperLink does not know the run any more"
        status = str(runs[0]["status"])
        if status.startswith("finished"):
            return status


def flwr(*command: str) -> dict[str, object]:
    """What a command of Flower's answers; empty when it gives no answer."""
    done = subprocess.run(
        ["flwr", *command, "--format", "json"], capture_output=True, text=True, check=False
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def say(text: str) -> None:
    """A line for the journal."""
    print(f"supervise: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
