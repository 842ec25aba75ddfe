"""What `import fedhaw` offers."""

import fedhaw
import fedhaw.rules
from fedhaw.rules.registry import RULES


def test_every_public_name_is_there() -> None:
    assert all(hasattr(fedhaw, name) for name in fedhaw.__all__)
    assert set(fedhaw.__all__) >= {"simulate", "FedHAW", "History", "LocalUpdate", "LetterUplink"}


def test_every_rule_is_public() -> None:
    for entry in RULES.values():
        assert getattr(fedhaw, entry.cls.__name__) is entry.cls
        assert entry.cls.__name__ in fedhaw.__all__


def test_the_errors_of_a_federation_are_public() -> None:
    errors = {name for name in fedhaw.__all__ if name.startswith(("Invalid", "Unknown"))}
    assert errors | {"DataError"} > {"InvalidSetting", "InvalidSimulation", "InvalidUpdate"}
    for name in errors:
        assert issubclass(getattr(fedhaw, name), fedhaw.FedhawError)
