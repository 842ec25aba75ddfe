"""What `import fedhaw` offers."""

import fedhaw


def test_every_public_name_is_there() -> None:
    assert all(hasattr(fedhaw, name) for name in fedhaw.__all__)
    assert set(fedhaw.__all__) >= {"simulate", "FedHAW", "History", "LocalUpdate", "LetterUplink"}
