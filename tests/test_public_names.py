"""What `import fedhaw` offers."""

import fedhaw
import fedhaw.rules
from fedhaw.rules.registry import RULES
from fedhaw.rules.table import __all__ as listed


def test_every_public_name_is_there() -> None:
    assert all(hasattr(fedhaw, name) for name in fedhaw.__all__)
    assert set(fedhaw.__all__) >= {"simulate", "FedHAW", "History", "LocalUpdate", "LetterUplink"}


def test_every_rule_of_the_table_is_public() -> None:
    assert sorted(entry.cls.__name__ for entry in RULES.values()) == sorted(listed)
    assert set(listed) <= set(fedhaw.__all__) & set(fedhaw.rules.__all__)


def test_the_errors_of_a_federation_are_public() -> None:
    errors = {name for name in fedhaw.__all__ if name.startswith(("Invalid", "Unknown"))}
    assert errors | {"DataError"} > {"InvalidSetting", "InvalidSimulation", "InvalidUpdate"}
    for name in errors:
        assert issubclass(getattr(fedhaw, name), fedhaw.FedhawError)
