"""`simulate`: one federation in, one history out."""

import inspect
import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, Unpack, cast

from fedhaw.clients import algorithm_of
from fedhaw.description import describe
from fedhaw.errors import shown
from fedhaw.files import is_path
from fedhaw.history import ClientFacts, EndRecord, History, RoundRecord, RunRecord
from fedhaw.rules import Rule, pack_state
from fedhaw.rules.base import suited
from fedhaw.rules.private import Private, unhidden
from fedhaw.settings import SETTINGS, DataSource, InvalidSetting, Settings, fill
from fedhaw.settings.table import default_text
from fedhaw.simulation.engines import create
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.evaluation import ModelEvaluation
from fedhaw.simulation.federation import Federation
from fedhaw.simulation.loop import Loop, Progress
from fedhaw.simulation.run_folder import RunFolder
from fedhaw.simulation.snapshots import beginning, snapshot

RuleSource: TypeAlias = Rule[Any] | Callable[[Federation], Rule[Any]]
"""A rule, or a function that makes one for the prepared federation."""

OnRound: TypeAlias = Callable[[RoundRecord], None]

LONG = 60.0
"""Seconds after a checkpoint from which on a round has one too: a kill costs these, or a round."""

logger = logging.getLogger(__name__)


def simulate(
    rule: RuleSource,
    data: DataSource = "mnist-5k",
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    name: str | None = None,
    on_round: OnRound | None = None,
    **settings: Unpack[Settings],
) -> History:
    """One federation, run from beginning to end.

    Two runs that differ only in the rule begin with the same model and see the same cohorts, the
    same lost uploads and the same batches. A run with `out` that was stopped, by whatever, goes on
    when it is called again, and ends as if it had never stopped, bit for bit.

    Args:
        rule: the server's rule, or a function that is given the prepared `Federation` and returns
            one, as FedLAW needs: ``lambda f: FedLAW(f.proxy_losses())``.
        data: a data set's name, FILE.npz, or a `fedhaw.data.Dataset`.
        out: folder for history.jsonl and checkpoints/; None keeps nothing.
        resume: go on from what `out` holds; False starts afresh and removes it.
        name: of the run in its history, default the rule's.
        on_round: called with each round's record.
        settings: the settings of the federation, by name; see docs/settings.md.

    Raises:
        FedhawError: an argument is wrong, files cannot be read or written, or the model diverged.
    """
    _check_keeping(out, resume, name, on_round)
    federation = Federation.prepare(fill({"data": data, **settings}, objects=True))
    return run(federation, rule, out, resume=resume, name=name, on_round=on_round)


def _spell_out(function: Callable[..., History]) -> None:
    """A signature that shows every setting to `help` and notebooks, which read it at run time."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    further = [setting for setting in SETTINGS.values() if setting.name != "data"]
    keywords = [
        inspect.Parameter(
            s.name, inspect.Parameter.KEYWORD_ONLY, default=... if s.by_data else s.default
        )
        for s in further
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *keywords])
    lines = "\n".join(f"        {s.name}: {s.help} Default {default_text(s)}." for s in further)
    stated = "        settings: the settings of the federation, by name; see docs/settings.md."
    function.__doc__ = (function.__doc__ or "").replace(stated, lines)


_spell_out(simulate)


def run(
    federation: Federation,
    rule: RuleSource,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = True,
    name: str | None = None,
    on_round: OnRound | None = None,
) -> History:
    """A prepared federation, run from beginning to end; see `simulate` for the arguments."""
    server = _rule(rule, federation)
    if isinstance(server, Private):
        # Whether an update is refused for its length depends on the others': privacy forbids it.
        federation = replace(federation, settings={**federation.settings, "length_limit": 0})
    evaluate = ModelEvaluation(federation)
    with ExitStack() as opened:
        engine = opened.enter_context(closing(create(federation)))
        loop = Loop(federation, server, engine, evaluate)
        header = _header(loop, name)
        folder, checkpoint, memories = None, None, None
        if out is not None:
            pack_state(server.init())  # what cannot be stored is noticed before anything is written
            folder = opened.enter_context(closing(RunFolder(Path(out), header, resume=resume)))
            checkpoint, memories = folder.checkpoint, folder.memories
        progress = beginning(loop, checkpoint, memories)
        if progress.exchange is not None:
            opened.enter_context(closing(progress.exchange))
        return _play(loop, progress, header, folder, on_round)


def _play(
    loop: Loop,
    progress: Progress,
    header: RunRecord,
    folder: RunFolder | None,
    on_round: OnRound | None,
) -> History:
    """The history of a run that begins or goes on, played to the end."""
    records = [] if folder is None else folder.records
    settings = loop.federation.settings
    rounds, checkpoint_every = settings["rounds"], settings["checkpoint_every"]
    if progress.next_round > rounds:
        raise InvalidSimulation(
            f"rounds is {rounds}, but the run in {folder and folder.path.parent} has already done "
            f"{progress.next_round}; ask for at least as many, or choose another folder."
        )

    saved_at = time.monotonic()

    def after_round(record: RoundRecord, progress: Progress) -> None:
        nonlocal saved_at
        records.append(record)
        if folder is not None:
            folder.append(record)
            due = progress.next_round % checkpoint_every == 0 or progress.next_round == rounds
            if due or time.monotonic() - saved_at >= LONG:
                folder.save(snapshot(progress, header.config, loop.federation.layout))
                saved_at = time.monotonic()
                if progress.exchange is not None:
                    progress.exchange.saved()
            elif progress.next_round == 1:
                pack_state(progress.state)  # now it has all that `init` left empty
        if on_round is not None:
            on_round(record)

    loop.play(progress, after_round)
    if folder is not None and not folder.finished:
        seconds = round(sum(sum(record.seconds.values()) for record in records), 6)
        folder.append(EndRecord(seconds=seconds))
    return History(
        run=header if folder is None else folder.run,
        records=tuple(records),
        finished=True,
        path=None if folder is None else folder.path,
        model=progress.model.cpu().numpy(),
    )


def _header(loop: Loop, name: str | None) -> RunRecord:
    from fedhaw import __version__

    federation, rule = loop.federation, describe(loop.rule)
    held = enumerate(zip(federation.sizes, federation.labels, strict=True))
    return RunRecord(
        name=name or rule["name"],
        rule=rule,
        seed=federation.settings["seed"],
        config={"rule": rule, **federation.config(), "arithmetic": loop.engine.arithmetic},
        clients={
            str(client): ClientFacts(int(size), tuple(counts.tolist()))
            for client, (size, counts) in held
        },
        parameters=federation.layout.size,
        fedhaw=__version__,
    )


def _rule(rule: RuleSource, federation: Federation) -> Rule[Any]:
    # What a user gives may be of any type; it is looked at below.
    made: Rule[Any] = cast(Any, rule)
    if callable(rule) and not isinstance(rule, type) and not hasattr(rule, "aggregate"):
        made = rule(federation)
    if isinstance(made, type) or not isinstance(made, Rule):
        raise InvalidSimulation(
            f"rule is {shown(rule)}; give a rule such as fedhaw.FedAvg(), or a function that "
            "returns one for the federation."
        )
    theirs, ours = getattr(made, "eta", None), federation.eta
    if theirs is not None and ours is not None and theirs != ours:
        logger.warning(
            "%s takes the clients' learning rate for %s, but they use %s.",
            type(made).__name__, theirs, ours,
        )  # fmt: skip
    if isinstance(made, Private):
        layout = federation.layout
        beside = algorithm_of(federation.client_update).init(layout.parameters).remembers
        sentence = unhidden(beside, statistics=layout.size > layout.parameters)
        if sentence is not None:
            raise InvalidSimulation(sentence)
    return suited(made, federation.client_update)


def _check_keeping(out: object, resume: object, name: object, on_round: object) -> None:
    if out is not None and not is_path(out):
        raise InvalidSetting(f"out is {shown(out)}; it must be the path of a folder.")
    if not isinstance(resume, bool):
        raise InvalidSetting(f"resume is {shown(resume)}; it must be True or False.")
    if name is not None and not isinstance(name, str):
        raise InvalidSetting(f"name is {shown(name)}; it must be a text.")
    if on_round is not None and not callable(on_round):
        raise InvalidSetting(f"on_round is {shown(on_round)}; it must be a function of a record.")
