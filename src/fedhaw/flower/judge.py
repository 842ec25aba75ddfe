"""What can be said against a reply only when all of them are in."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhaw.flower.answers import Answers
from fedhaw.flower.examples import SUDDEN, ExamplesLimit
from fedhaw.flower.roster import Roster, order
from fedhaw.rules import LengthGuard
from fedhaw.rules.base import Client

if TYPE_CHECKING:  # it needs torch, which most servers do without
    from fedhaw.flower.beside import Beside


@dataclass(frozen=True)
class Judge:
    """A judge of a round's contributions.

    Attributes:
        roster: who may speak for whom, and what each client said before.
        examples_limit: bounds what clients say of their data.
        guard: refuses absurdly long updates.
        beside: the client algorithm's part of the server, if it has one.
        spared: clients whose long updates the rule shortens itself.
    """

    roster: Roster
    examples_limit: ExamplesLimit
    guard: LengthGuard
    beside: "Beside | None"
    spared: Collection[Client] = ()

    def judge(self, answers: Answers, lengths: Mapping[int, float]) -> tuple[set[str], LengthGuard]:
        """Contributions that cannot be believed, refused.

        Args:
            answers: of the round; what is refused moves within them.
            lengths: of the nodes' updates.

        Returns:
            The clients whose updates were too long, and the guard that knows of this round.
        """
        answers.refuse(self._duplicates(answers))
        said = answers.contributions
        if self.beside is not None:
            refused = self.beside.judge({c.client: c.beside for c in said.values()})
            named = {n: refused[c.client] for n, c in said.items() if c.client in refused}
            answers.refuse(named, with_examples=True)
        spared = {node for node, c in said.items() if c.client in self.spared}
        absurd, guard = self.guard.judge(*self._measured(answers, lengths), spared)
        clients = {said[node].client for node in absurd}
        answers.refuse({node: absurd[node] for node in list(said) if node in absurd})
        return clients, guard

    def _duplicates(self, answers: Answers) -> dict[int, str]:
        """Nodes that claim to be a client that others claim to be, too."""
        claimants: dict[str, list[str]] = {}
        for node, said in sorted(answers.contributions.items()):
            claimants.setdefault(said.client, []).append(str(node))
        return {
            node: f"duplicate client id: nodes {', '.join(claimants[said.client])} claim to be "
            f"{said.client!r}"
            for node, said in answers.contributions.items()
            if len(claimants[said.client]) > 1 and self.roster.bound_to(node) != said.client
        }

    def _measured(
        self, answers: Answers, lengths: Mapping[int, float]
    ) -> tuple[dict[int, float], dict[int, float]]:
        """The length of each node's update, and the examples that excuse it.

        Who has more data may go further: more than it is believed to have, that is.
        """
        before = self.roster.examples
        by_name = sorted(answers.contributions.items(), key=lambda pair: order(pair[1].client))
        said = {
            c.client: min(c.examples, SUDDEN * (before.get(c.client) or math.inf))
            for _, c in by_name
        }
        counted, _ = self.examples_limit.counted(said)
        return (
            {node: lengths[node] for node, _ in by_name},
            {node: counted[c.client] for node, c in by_name},
        )
