"""`simulate`: one federation in, one history out."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias, get_args

import torch

from fedhaw.clients import ClientUpdate
from fedhaw.data import Dataset
from fedhaw.data.scales import Scale
from fedhaw.description import describe
from fedhaw.history import ClientFacts, EndRecord, History, RoundRecord, RunRecord
from fedhaw.models import Buffers, EvaluationMetric
from fedhaw.rules import LengthGuard, Rule
from fedhaw.rules.lengths import LIMIT
from fedhaw.simulation.engines import ENGINES, EngineName, create
from fedhaw.simulation.engines.stacked import StackedEngine
from fedhaw.simulation.evaluation import ModelEvaluation
from fedhaw.simulation.federation import (
    Federation,
    InvalidSimulation,
    ModelSource,
    SplitSource,
    prepare,
)
from fedhaw.simulation.loop import Loop, Progress
from fedhaw.simulation.run_folder import RunFolder
from fedhaw.simulation.snapshots import beginning, snapshot
from fedhaw.simulation.stand_ins import StandIn
from fedhaw.uplink import RecordedUplink, Uplink, uplink_of

RuleSource: TypeAlias = Rule[Any] | Callable[[Federation], Rule[Any]]
"""A rule, or a function that makes one for the prepared federation."""

logger = logging.getLogger(__name__)


def simulate(
    rule: RuleSource,
    data: str | os.PathLike[str] | Dataset = "mnist-5k",
    *,
    model: ModelSource = "mlp-128-128",
    clients: int | None = None,
    split: SplitSource = "letter",
    alpha: float = 0.1,
    split_seed: int | None = None,
    update: str | ClientUpdate = "sgd",
    eta: float = 1e-3,
    epochs: int = 1,
    batch: int = 64,
    uplink: Uplink | float | str | os.PathLike[str] | None = None,
    stand_in: StandIn = "global",
    length_limit: float = LIMIT,
    cohort: int | None = None,
    rounds: int = 100,
    seed: int = 0,
    buffers: Buffers = "batch",
    scale: Scale = "matched",
    also_scales: Sequence[Scale] | Scale = (),
    evaluate_every: int = 1,
    metrics: Mapping[str, EvaluationMetric] | None = None,
    per_client_accuracy: bool = False,
    engine: EngineName | str = "auto",
    workers: int | None = None,
    deadline: float | None = None,
    device: str | torch.device = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 10,
    resume: bool = True,
    name: str | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
) -> History:
    """Run one federation.

    Two runs that differ only in the rule begin with the same model and see the same cohorts, the
    same lost uploads and the same batches. A run with `out` that was stopped, by whatever, goes on
    when it is called again, and ends as if it had never stopped, bit for bit.

    Args:
        rule: the server's rule, or a function that is given the prepared `Federation` and returns
            one, as FedLAW needs: ``lambda f: FedLAW(f.proxy_losses())``.
        data: a data set's name, FILE.npz, or a `fedhaw.data.Dataset`.
        model: a model's name, a torch module (its values are the initial model), or a function
            that makes a module, called with torch seeded by `seed`.
        clients: K; 10 unless the split says otherwise.
        split: "letter", "dirichlet", "iid", "shards", "holders", a file, or a list with an array
            of sample indices for each client.
        alpha: concentration of the Dirichlet splits.
        split_seed: of the split; default 1 for "letter", as there, and 0 for the others.
        update: what a client does: "sgd", "sgd-wd", "adam", "fedprox", "fedprox+adam", a
            `LocalUpdate`, or a function of your own.
        eta: the clients' learning rate, for a named update; so are the next two.
        epochs: passes over a client's samples in a round.
        batch: samples a step.
        uplink: None loses nothing; a number is the letter's p_e; or the path of a trace, or an
            uplink such as `BurstyUplink`.
        stand_in: what takes the place of a lost upload: the "global" model, the client's "last"
            received model, or "none".
        length_limit: how many times as long as is usual in the round an update may be before it is
            refused, and counts as lost; 0 refuses none. See `fedhaw.rules.lengths`.
        cohort: how many clients are drawn each round; None asks all.
        rounds: T. A finished run may be called again with more.
        seed: of everything random but the split.
        buffers: what happens to batch norm's statistics, see `fedhaw.models.Layout`.
        scale: of the inputs, "matched" or "authors", see `fedhaw.data.scaled`.
        also_scales: further scales on which the model is evaluated.
        evaluate_every: evaluate each so many rounds, and always in the last one.
        metrics: further evaluation metrics by name, functions (outputs, labels) -> number; they
            are given all outputs, (M, ...), and labels, (M,), of the test set at once.
        per_client_accuracy: also evaluate the global model on each client's own samples.
        engine: "auto", "sequential", "processes" or "stacked"; who trains, not what comes out.
        workers: processes of the engine "processes", default one per core.
        deadline: seconds after which a client's model is too late; such a run is not repeatable.
        device: where to compute.
        data_dir: where data files are looked for first.
        out: folder for history.jsonl and checkpoints/; None keeps nothing.
        checkpoint_every: rounds between checkpoints; there is always one at the end.
        resume: go on from what `out` holds; False starts afresh and removes it.
        name: of the run in its history, default the rule's.
        on_round: called with each round's record.

    Raises:
        FedhawError: an argument is wrong, files cannot be read or written, or the model diverged.
    """
    _check_whole(
        1, clients=clients, cohort=cohort, rounds=rounds, workers=workers,
        evaluate_every=evaluate_every, checkpoint_every=checkpoint_every,
    )  # fmt: skip
    _check_whole(0, 2**32 - 1, seed=seed, split_seed=split_seed)
    _check_number(alpha=alpha, eta=eta)
    if deadline is not None:
        _check_number(deadline=deadline)
    _check_choice("stand_in", stand_in, get_args(StandIn))
    _check_choice("engine", engine, ENGINES)
    if on_round is not None and not callable(on_round):
        raise InvalidSimulation(f"on_round is {on_round!r}; it must be a function of a record.")
    if out is not None and not isinstance(out, (str, os.PathLike)):
        raise InvalidSimulation(f"out is {out!r}; it must be the path of a folder.")
    for flag, value in (("resume", resume), ("per_client_accuracy", per_client_accuracy)):
        if not isinstance(value, bool):
            raise InvalidSimulation(f"{flag} is {value!r}; it must be True or False.")
    if name is not None and not isinstance(name, str):
        raise InvalidSimulation(f"name is {name!r}; it must be a text.")
    guard = LengthGuard(length_limit)
    channel = uplink_of(uplink)
    federation, training = prepare(
        data, model=model, clients=clients, split=split, alpha=alpha, split_seed=split_seed,
        update=update, eta=eta, epochs=epochs, batch=batch, seed=seed, buffers=buffers,
        scale=scale, also_scales=also_scales, device=device, data_dir=data_dir,
    )  # fmt: skip
    _check_fit(federation, channel, cohort)
    server = _rule(rule, federation)
    evaluate = ModelEvaluation(federation, metrics, training if per_client_accuracy else None)
    trainer = create(
        engine, module=federation.module, layout=federation.layout, update=federation.update,
        x=training.x, y=training.y, parts=training.parts, seed=seed, device=federation.device,
        workers=workers, deadline=deadline,
    )  # fmt: skip
    del training  # the engine has what it needs
    try:
        config = {
            "uplink": describe(channel),
            "stand_in": stand_in,
            "length_limit": float(length_limit),
            "cohort": describe(cohort),
            "evaluate_every": int(evaluate_every),
            # Stacked models round differently in the last bits; the other engines agree.
            "arithmetic": "stacked" if isinstance(trainer, StackedEngine) else "one by one",
            "rounds": int(rounds),
            # Only where asked for: runs from before there were these settings still go on.
            **({"metrics": sorted(metrics)} if metrics else {}),
            **({"per_client_accuracy": True} if per_client_accuracy else {}),
        }
        run = _run_record(federation, server, name, config)
        folder = None if out is None else RunFolder(Path(out), run, resume=resume)
        loop = Loop(
            federation, server, trainer, channel, stand_in, cohort, seed, evaluate_every, evaluate
        )
        try:
            return _play(loop, guard, rounds, run, folder, checkpoint_every, on_round)
        finally:
            if folder is not None:
                folder.close()
    finally:
        trainer.close()


def _play(
    loop: Loop,
    guard: LengthGuard,
    rounds: int,
    run: RunRecord,
    folder: RunFolder | None,
    checkpoint_every: int,
    on_round: Callable[[RoundRecord], None] | None,
) -> History:
    """Begin or go on, play to the end, and close the history."""
    progress = beginning(loop, guard, None if folder is None else folder.checkpoint)
    records = [] if folder is None else folder.records
    if progress.next_round > rounds:
        raise InvalidSimulation(
            f"rounds is {rounds}, but the run in {folder and folder.path.parent} has already done "
            f"{progress.next_round}; ask for at least as many, or choose another folder."
        )

    def after_round(record: RoundRecord, progress: Progress) -> None:
        records.append(record)
        if folder is not None:
            folder.append(record)
            if progress.next_round % checkpoint_every == 0 or progress.next_round == rounds:
                folder.save(snapshot(progress, run.config))
        if on_round is not None:
            on_round(record)

    if folder is not None and folder.finished and progress.next_round < rounds:
        folder.reopen()
    loop.play(progress, rounds, after_round)
    if folder is not None and not folder.finished:
        seconds = round(sum(sum(record.seconds.values()) for record in records), 6)
        folder.append(EndRecord(seconds=seconds))
    return History(
        run=run if folder is None else folder.run,
        records=tuple(records),
        finished=True,
        path=None if folder is None else folder.path,
        model=progress.model.cpu().numpy(),
    )


def _run_record(
    federation: Federation, rule: Rule[Any], name: str | None, config: Mapping[str, Any]
) -> RunRecord:
    from fedhaw import __version__

    description = describe(rule)
    held = enumerate(zip(federation.sizes, federation.labels, strict=True))
    return RunRecord(
        name=name or description["name"],
        rule=description,
        seed=int(federation.description["seed"]),
        config={"rule": description, **describe(federation.description), **config},
        clients={
            str(client): ClientFacts(int(size), tuple(counts.tolist()))
            for client, (size, counts) in held
        },
        parameters=federation.layout.size,
        fedhaw=__version__,
    )


def _rule(rule: RuleSource, federation: Federation) -> Rule[Any]:
    made: Any = rule
    if callable(rule) and not isinstance(rule, type) and not hasattr(rule, "aggregate"):
        made = rule(federation)
    if isinstance(made, type) or not (hasattr(made, "aggregate") and hasattr(made, "init")):
        raise InvalidSimulation(
            f"rule is {rule!r}; give a rule such as fedhaw.FedAvg(), or a function that returns "
            "one for the federation."
        )
    theirs, ours = getattr(made, "eta", None), federation.eta
    if theirs is not None and ours is not None and theirs != ours:
        logger.warning(
            "%s takes the clients' learning rate for %s, but they use %s.",
            type(made).__name__, theirs, ours,
        )  # fmt: skip
    return made  # type: ignore[no-any-return]


def _check_fit(federation: Federation, uplink: Uplink | None, cohort: int | None) -> None:
    if cohort is not None and cohort > federation.clients:
        raise InvalidSimulation(
            f"cohort is {cohort}, but there are only {federation.clients} clients; ask for fewer."
        )
    if isinstance(uplink, RecordedUplink):
        uplink.check(federation.clients)


def _check_whole(least: int, largest: int | None = None, **values: object) -> None:
    limits = f"{least} or more" if largest is None else f"{least} to {largest}"
    for name, value in values.items():
        if value is None:
            continue
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or int(value) < least or (largest is not None and int(value) > largest):  # type: ignore[call-overload]
            raise InvalidSimulation(f"{name} is {value!r}; it must be a whole number, {limits}.")


def _check_number(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, Real) or isinstance(value, bool):
            raise InvalidSimulation(f"{name} is {value!r}; it must be a number.")


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        options = ", ".join(repr(option) for option in known)
        raise InvalidSimulation(f"{name} is {value!r}; choose one of {options}.")
