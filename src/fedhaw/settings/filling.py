"""From what a user says to the settings of a federation: all of them, each checked."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias, cast

from fedhaw.errors import shown
from fedhaw.names import advice
from fedhaw.settings.declaration import FORMER_NAMES, SETTINGS, SPELLINGS, FederationSettings
from fedhaw.settings.setting import InvalidSetting

Place: TypeAlias = Callable[[str], str]
"""How a setting is called where it was given: `alpha`, `--alpha`, `alpha in FILE.toml`."""


def by_name(
    values: Mapping[str, object], place: Place = str, known: Sequence[str] = tuple(SETTINGS)
) -> dict[str, object]:
    """The values by the settings' own names.

    Args:
        values: what was said, by name.
        place: how a setting is called where it was said, for the sentences.
        known: every name there is, to suggest one.

    Raises:
        InvalidSetting: a name that no setting has, or one thing said twice.
    """
    named: dict[str, object] = {}
    for key, value in values.items():
        name = SPELLINGS.get(key, key)
        if name not in SETTINGS:
            raise InvalidSetting(_unknown(key, place, known))
        if name in named:
            spelling = next(s for s, of in SPELLINGS.items() if of == name and s in values)
            raise InvalidSetting(
                f"{place(spelling)} is another name of {name}, which is given as well; give one of "
                "them."
            )
        named[name] = value
    return named


def fill(
    values: Mapping[str, object],
    place: Place = str,
    *,
    objects: bool = False,
    known: Sequence[str] = tuple(SETTINGS),
) -> FederationSettings:
    """Every setting, as given or by default, checked.

    Args:
        values: what was said, by name.
        place: how a setting is called where it was said, for the sentences.
        objects: whether it was said in Python, where a model, a split, ... need not be text.
        known: every name there is, to suggest one.

    Raises:
        InvalidSetting: a name that no setting has, a value that cannot be, or two that do not go
            together.
    """
    given = {
        name: SETTINGS[name].checked(value, place(name), objects=objects)
        for name, value in by_name(values, place, known).items()
        if not (value is None and SETTINGS[name].optional)
    }
    _take_a_number_for_the_loss_rate(given, place)
    _take_over_from_the_update(given, place)
    data = given.get("data", SETTINGS["data"].default)
    data_name = getattr(data, "name", data)
    filled: dict[str, Any] = {
        name: given.get(name, setting.default_for(data_name)) for name, setting in SETTINGS.items()
    }
    if "clients" not in given and not _splits_among_any(filled["split"]):
        filled["clients"] = None
    for name in ("cohort", "noisy_clients"):
        number, clients = filled[name], filled["clients"]
        if number is not None and clients is not None and number > clients:
            raise InvalidSetting(
                f"{place(name)} is {number}, but there are {clients} clients; ask for at most "
                f"{clients}."
            )
    return cast(FederationSettings, filled)


def described(settings: FederationSettings) -> dict[str, object]:
    """Every setting that the result depends on, JSON-ready where none is an object of Python."""
    values = cast(Mapping[str, object], settings)
    return {
        name: values[name]
        for name, setting in SETTINGS.items()
        if not setting.place_only and not (setting.later and values[name] == setting.unspoken)
    }


def of_today(config: Mapping[str, object]) -> dict[str, Any]:
    """An older description of a run by the names of today, and without what is left out today."""
    named = {FORMER_NAMES.get(key, key): value for key, value in config.items()}
    for name, setting in SETTINGS.items():
        if isinstance(value := named.get(name), str):
            named[name] = setting.same_values.get(value, value)
    if isinstance(device := named.get("device"), str):  # once it was told which one of several
        named["device"] = device.partition(":")[0]
    later = {name: s.unspoken for name, s in SETTINGS.items() if s.later}
    return {key: value for key, value in named.items() if later.get(key, later) != value}


def _unknown(key: str, place: Place, known: Sequence[str]) -> str:
    if key in FORMER_NAMES:
        return f"{place(key)} is called {FORMER_NAMES[key]} now; give it by that name."
    return f"{place(key)} does not exist; {advice(key, known)}"


def _splits_among_any(split: object) -> bool:
    """Whether a split can be made for any number of clients, and does not name its own."""
    return isinstance(split, str) and split != "holders" and ".npz" not in split


def _take_a_number_for_the_loss_rate(given: dict[str, object], place: Place) -> None:
    uplink = given.get("uplink")
    if uplink is None or isinstance(uplink, str):
        return
    if "loss_rate" in given:
        raise InvalidSetting(
            f"{place('loss_rate')} is {shown(given['loss_rate'])}, but {place('uplink')} says how "
            "much is lost; leave one of them out."
        )
    if isinstance(uplink, Real) and not isinstance(uplink, bool):
        given["loss_rate"] = SETTINGS["loss_rate"].checked(uplink, place("uplink"))
        given["uplink"] = "letter"


def _take_over_from_the_update(given: dict[str, object], place: Place) -> None:
    """The rate, batch, ... taken over from an update that is an object; both must agree."""
    update = given.get("client_update", "")
    if isinstance(update, str):
        return
    update = getattr(update, "steps", update)  # the steps below an algorithm
    for name, setting in SETTINGS.items():
        if setting.told_by == "client_update" and hasattr(update, name):
            own = setting.checked(getattr(update, name), f"{name} of {place('client_update')}")
            if given.get(name, own) != own:
                raise InvalidSetting(
                    f"{place(name)} is {shown(given[name])}, but client_update says {own}; say it "
                    "once, in client_update."
                )
            given[name] = own
