"""Uploads on their way: what an uplink that delays hands over rounds later.

An upload that comes in a later round counts as in Flower (`fedhaw.late`): as its client's update of
that age, unless the client has sent a newer one, and for so many rounds only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedhaw import late
from fedhaw.checkpoints import Part
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.federation import Federation
from fedhaw.uplink import DelayingUplink, RecordedUplink


@dataclass(frozen=True, eq=False)
class LateUpload:
    """One upload that missed its round.

    Attributes:
        client: whose.
        asked: the round in which it was asked for.
        due: the round in which it comes.
        length: of its update.
        model: (P,) what it holds.
        sent: (P,) the global model that the client was sent.
    """

    client: int
    asked: int
    due: int
    length: float
    model: Tensor
    sent: Tensor


@dataclass
class LateUploads:
    """All that is on its way.

    Attributes:
        uplink: says what is late, and by how much.
        seed: of the run.
        learnt: how many of the P numbers are learnt; running statistics do not fade.
        uploads: on their way.
    """

    uplink: DelayingUplink
    seed: int
    learnt: int
    uploads: list[LateUpload] = field(default_factory=list)

    @classmethod
    def begin(cls, federation: Federation) -> "LateUploads | None":
        """Nothing on its way yet; None where the uplink delays nothing."""
        uplink = federation.uplink
        if not isinstance(uplink, DelayingUplink):
            return None
        if isinstance(uplink, RecordedUplink) and not uplink.late:
            return None
        return cls(uplink, federation.settings["seed"], federation.layout.parameters)

    def send(
        self, t: int, w: Tensor, cohort: Sequence[int], W: Tensor, lengths: Mapping[int, float]
    ) -> None:
        """Those that miss this round and come later, of the clients that have a length, kept."""
        delays = np.asarray(self.uplink.delays(self.seed, t, cohort))
        if delays.shape != (len(cohort),) or delays.dtype.kind not in "biu":
            raise InvalidSimulation(
                f"{type(self.uplink).__name__}.delays returned {delays.dtype} of shape "
                f"{delays.shape}; it must return a whole number for each of the {len(cohort)} "
                "clients asked about."
            )
        for client, model, delay in zip(cohort, W, delays.tolist(), strict=True):
            if client in lengths and 0 < delay <= late.ROUNDS:
                upload = LateUpload(client, t, t + delay, lengths[client], model.clone(), w)
                self.uploads.append(upload)

    def arrive(self, t: int, there: Collection[int]) -> list[LateUpload]:
        """What comes in this round, the newest of each client, but of nobody who is there already.

        What is older than what a client has sent by now is of no interest any more.
        """
        newest: dict[int, LateUpload] = {}
        for upload in self.uploads:  # in the order in which they were asked for
            if upload.due == t and upload.client not in there:
                newest[upload.client] = upload
        heard = dict.fromkeys(there, t) | {client: u.asked for client, u in newest.items()}
        self.uploads = [u for u in self.uploads if u.due > t and u.asked > heard.get(u.client, -1)]
        return list(newest.values())

    def move(self, upload: LateUpload, t: int, w: Tensor, row: Tensor) -> str:
        """The upload in its row of the round's matrix, moved to where the global model is by now.

        Returns:
            What to say of it.
        """
        row.copy_(upload.model)
        age, learnt = t - upload.asked, self.learnt
        late.moved_to(w[:learnt], upload.sent[:learnt], row[:learnt], age)
        return late.counts(upload.client, upload.asked, age)

    def pack(self) -> Part:
        """What a checkpoint stores."""
        sent = {upload.asked: upload.sent for upload in self.uploads}
        facts = {"uploads": [[u.client, u.asked, u.due, u.length] for u in self.uploads]}
        arrays = {
            "sent": _stack([*sent.values()]),
            "models": _stack([u.model for u in self.uploads]),
        }
        return Part(arrays, facts)

    def unpack(self, part: Part, like: Tensor) -> None:
        """The state that `pack` gave, taken over."""
        listed = part.facts["uploads"]
        rounds = list(dict.fromkeys(asked for _, asked, _, _ in listed))
        placed = [like.new_tensor(model) for model in part.arrays["sent"]]
        sent = dict(zip(rounds, placed, strict=True))
        self.uploads = [
            LateUpload(client, asked, due, length, like.new_tensor(model), sent[asked])
            for (client, asked, due, length), model in zip(
                listed, part.arrays["models"], strict=True
            )
        ]


def _stack(models: Sequence[Tensor]) -> NDArray[Any]:
    return torch.stack([*models]).cpu().numpy() if models else np.zeros((0, 0), np.float32)
