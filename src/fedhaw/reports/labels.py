"""What a group of runs is called, so that no two different things share a name."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from fedhaw.description import flat
from fedhaw.history import History
from fedhaw.rules.registry import RULES, title_of
from fedhaw.settings import SETTINGS, of_today

INCIDENTAL = frozenset(
    {
        *(name for name, setting in SETTINGS.items() if setting.place_only),
        *("seed", "seeds", "rules", "out", "folder", "path", "threads", "started", "resume"),
        *("initial_model", "parts", "metrics", "per_client_accuracy"),
    }
)
"""Settings that may differ between the seeds of one group: they follow from the seed, or do not
change what is computed."""

FINGERPRINTS = frozenset({"digest"})
"""Settings that part groups but tell a reader nothing."""


def labelled(runs: Sequence[History]) -> dict[str, list[History]]:
    """Runs by label; within one label every seed stands once and all settings agree."""
    by_name: defaultdict[str, list[History]] = defaultdict(list)
    for run in runs:
        by_name[title_of(run.name)].append(run)
    groups: dict[str, list[History]] = {}
    for name, members in by_name.items():
        by_settings: defaultdict[str, list[History]] = defaultdict(list)
        for run, difference in zip(members, _differences(members), strict=True):
            by_settings[f"{name} ({difference})" if difference else name].append(run)
        for label, alike in by_settings.items():
            groups.update(_by_folder(label, alike))
    return groups


def sort_key(rule: str, label: str) -> tuple[int, str]:
    """Known rules in the order they are listed, then the others by label."""
    known = list(RULES)
    return (known.index(rule) if rule in known else len(known), label)


def settings(run: History) -> dict[str, str]:
    """The run's description and its rule's hyper-parameters, flat, as text."""
    described = {**of_today(run.run.config), "rule": dict(run.run.rule)}
    described.pop("name", None)
    return {
        key: f"{value:g}" if isinstance(value, float) else str(value)
        for key, value in flat(described).items()
        if value is not None
    }


def readable(run: History) -> dict[str, str]:
    """The settings worth a reader's time, by the names they have for people."""
    return {
        key.removesuffix(".name"): value
        for key, value in essential(run).items()
        if key.rpartition(".")[2] not in FINGERPRINTS and value != "[]"
    }


def essential(run: History) -> dict[str, str]:
    """The settings that change what is computed."""
    return {
        key: value
        for key, value in settings(run).items()
        if key.rpartition(".")[2] not in INCIDENTAL
    }


def _differences(runs: Sequence[History]) -> list[str]:
    """For each run, those settings in which the runs differ, as `key=value, ...`."""
    described = [essential(run) for run in runs]
    keys = dict.fromkeys(key for one in described for key in one)
    differing = [key for key in keys if len({one.get(key) for one in described}) > 1]
    telling = [key for key in differing if key.rpartition(".")[2] not in FINGERPRINTS]
    return [
        ", ".join(
            f"{key.removesuffix('.name').rpartition('.')[2]}={one[key]}"
            for key in telling or differing
            if key in one
        )
        for one in described
    ]


def _by_folder(label: str, runs: list[History]) -> dict[str, list[History]]:
    """One group, or, where a seed stands twice, one for each folder."""
    if max(Counter(run.seed for run in runs).values()) == 1:
        return {label: runs}
    folders = [(run.path or Path()).resolve().parent.parts for run in runs]
    shallowest = min(map(len, folders))
    shared = next(
        (depth for depth in range(shallowest) if len({parts[depth] for parts in folders}) > 1),
        shallowest,
    )
    groups: defaultdict[str, list[History]] = defaultdict(list)
    for run, parts in zip(runs, folders, strict=True):
        groups[f"{label} [{parts[shared] if len(parts) > shared else '.'}]"].append(run)
    if any(max(Counter(run.seed for run in group).values()) > 1 for group in groups.values()):
        # The first folder that differs does not tell them apart: name each run in full.
        return {
            f"{label} [{'/'.join(parts[shared:]) or '.'}]": [run]
            for run, parts in zip(runs, folders, strict=True)
        }
    return dict(groups)
