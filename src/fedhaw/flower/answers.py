"""What came of the nodes of a round: of each a contribution, or the reason why there is none."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from fedhaw.flower.replies import Contribution, Refusal
from fedhaw.flower.roster import Roster, unknown_client


@dataclass
class Answers:
    """Who contributes to a round and who does not, by node.

    Attributes:
        contributions: what the usable replies say.
        refusals: why the others count as lost.
    """

    contributions: dict[int, Contribution] = field(default_factory=dict)
    refusals: dict[int, Refusal] = field(default_factory=dict)

    def refuse(self, reasons: Mapping[int, str], *, with_examples: bool = False) -> None:
        """Contributions that turn out to be of no use; their number of examples may still be."""
        for node, reason in reasons.items():
            said = self.contributions.pop(node)
            examples = said.examples if with_examples else None
            self.refusals[node] = Refusal(reason, said.client, examples)

    def heard(self) -> set[int]:
        """The nodes of which something came back."""
        spoke = {node for node, refusal in self.refusals.items() if not refusal.silent}
        return self.contributions.keys() | spoke

    def tell(self, roster: Roster, asked: Container[int], server_round: int) -> list[str]:
        """What the roster learns of the round; a sentence on each client whose word it doubts."""
        said = []
        for node, contribution in self.contributions.items():
            client, examples = contribution.client, contribution.examples
            said.append(roster.answered(node, client, examples, server_round))
            roster.heard[client] = server_round
        for node, refusal in self.refusals.items():
            if refusal.silent:
                roster.silent(node, server_round)
            elif node in asked:
                roster.spoke(node)
                if refusal.client is not None and refusal.examples is not None:
                    client, examples = refusal.client, refusal.examples
                    said.append(roster.answered(node, client, examples, server_round))
        return sorted(filter(None, said))

    def lost(self, roster: Roster, asked: Container[int]) -> tuple[dict[str, str], dict[str, int]]:
        """Lost clients' reasons, and the node whose row stands for each.

        A silent node whose client answered through another node is that client's former life: the
        client is not lost.
        """
        answered = {contribution.client for contribution in self.contributions.values()}
        reasons: dict[str, str] = {}
        nodes: dict[str, int] = {}
        for node, refusal in self.refusals.items():
            client = refusal.client or roster.name(node)
            if client in answered:
                if refusal.silent or node not in asked:
                    continue
                client = unknown_client(node)
            if client not in reasons or not refusal.silent:
                reasons[client] = refusal.reason
            nodes.setdefault(client, node)
        return reasons, nodes
