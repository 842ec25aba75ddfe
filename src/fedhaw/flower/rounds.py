"""What happened in the rounds of a run: records, lines in the log, Flower's metrics."""

import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from fedhaw.flower.errors import EverybodyLost
from fedhaw.history import RoundRecord, finite

log = logging.getLogger("flwr.fedhaw")


@dataclass
class Rounds:
    """The rounds so far.

    Attributes:
        records: what happened, a record a round.
        cohorts: who took part in the aggregation, a tuple a round.
        counts: how many clients were asked, lost and so on in the last round, by name.
        lost_in_a_row: rounds without a single usable model.
    """

    records: list[RoundRecord] = field(default_factory=list)
    cohorts: list[tuple[str, ...]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    lost_in_a_row: int = 0

    def add(
        self, record: RoundRecord, cohort: tuple[str, ...], counts: dict[str, int], models: int
    ) -> None:
        """One round more, in which so many models could be used; the log names the lost."""
        self.records.append(record)
        self.cohorts.append(cohort)
        self.counts = counts
        log.info("aggregate_train: %d models, %d lost", models, len(record.lost))
        for client, reason in record.lost.items():
            log.warning("\t> lost: client %s: %s", client, reason)
        if record.note is not None:
            log.warning("\t> %s", record.note)

    def evaluated(self, measured: Mapping[str, float], seconds: float) -> None:
        """What was measured of the last round's model, written into its record."""
        record = self.records[-1]
        self.records[-1] = replace(
            record,
            evaluation=finite(measured.keys(), measured.values()),
            seconds={**record.seconds, "evaluate": seconds},
        )

    def stop_if_all_are_lost(self, most: int) -> None:
        """A stop of a run in which nothing works any more.

        Raises:
            EverybodyLost: so many rounds in a row gave no usable model.
        """
        if most and self.lost_in_a_row >= most:
            raise EverybodyLost(
                f"No client gave a usable model in the last {most} rounds; see the log for the "
                "reasons, mend the clients and run again, which goes on from the checkpoint if "
                "there is one. stop_when_lost=0 goes on regardless."
            )


def flower_metrics(
    record: RoundRecord, counts: Mapping[str, int], taken: Container[str] = ()
) -> dict[str, int | float | list[float]]:
    """What Flower's result says of a round; its metrics are numbers and lists of numbers.

    Args:
        record: the round.
        counts: how many clients were asked, lost, ...
        taken: names of the clients' metrics; what the rule calls alike is under `rule/`.
    """
    learnt: dict[str, int | float | list[float]] = {}
    for called, value in record.metrics.items():
        name = f"rule/{called}" if called in taken or called in counts else called
        if isinstance(value, Mapping):
            learnt |= {f"{name}/{client}": number for client, number in value.items()}
        elif not isinstance(value, tuple):
            learnt[name] = value
        elif value:
            learnt[name] = [float("nan") if number is None else number for number in value]
    lost = {f"lost/{client}": 1 for client in record.lost}
    return {**learnt, **counts, **lost}
