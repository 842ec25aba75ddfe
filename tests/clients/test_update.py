"""Client updates by name."""

import pytest

from fedhaw.clients import InvalidUpdate, LocalUpdate, named


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgd", LocalUpdate("sgd", 0.1)),
        ("sgd-wd", LocalUpdate("sgd", 0.1, weight_decay=1e-4)),
        ("adam", LocalUpdate("adam", 0.1)),
        ("fedprox", LocalUpdate("sgd", 0.1, proximal=1e-3)),
        ("fedprox+sgd", LocalUpdate("sgd", 0.1, proximal=1e-3)),
        ("fedprox+adam", LocalUpdate("adam", 0.1, proximal=1e-3)),
        ("fedprox+sgd-wd", LocalUpdate("sgd", 0.1, weight_decay=1e-4, proximal=1e-3)),
    ],
)
def test_names(name: str, expected: LocalUpdate) -> None:
    assert named(name, eta=0.1) == expected


def test_settings_go_through() -> None:
    update = named("fedprox+adam", eta=0.5, epochs=3, batch=7, weight_decay=0.2, mu=0.3)
    assert isinstance(update, LocalUpdate)
    assert (update.epochs, update.batch, update.weight_decay, update.proximal) == (3, 7, 0.2, 0.3)


@pytest.mark.parametrize("name", ["", "rmsprop", "adam+sgd", "fedprox+fedprox+sgd", "fedprox+"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidUpdate, match="no client update named"):
        named(name)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "lion"},
        {"eta": float("nan")},
        {"eta": -1.0},
        {"proximal": float("inf")},
        {"epochs": 0},
        {"batch": 2.5},
        {"epochs": True},
        {"eta": "x"},
        {"loss": 5},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    (name,) = settings
    with pytest.raises(InvalidUpdate, match=name):
        LocalUpdate(**settings)  # type: ignore[arg-type]
