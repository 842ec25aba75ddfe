"""Why a client's model is missing from a round, in the words of logs, metrics and histories."""

UPLINK = "uplink"
NOT_FINITE = "not finite"
NO_SAMPLES = "no samples"
OUT_OF_MEMORY = "out of memory"
NO_REPLY = "no reply before the deadline"

ABSENT = "absent"


def absent_since(last_heard: int) -> str:
    """The reason that a client which once took part is not there any more."""
    return f"{ABSENT}, last heard in round {last_heard}"


def silent_before(asked_again: int) -> str:
    """The reason that a node which did not answer before was not asked this time."""
    return f"silent before, to be asked again in round {asked_again}"


def too_large(size: int) -> str:
    """The reason that a reply holds far more than a model."""
    return f"the reply is of {size / 1e6:,.1f} MB, far more than a model"


NOTHING_ARRIVED = "nothing arrived; the model stayed"
"""What is said of a round in which everybody was lost."""

_EXCEPTION = "exception: "


def exception(what: str) -> str:
    """The reason that a client raised an exception, named with its class."""
    return f"{_EXCEPTION}{what}".rstrip(": ")


def exception_class(reason: str | None) -> str | None:
    """The class of the exception that a reason names; None for any other reason."""
    if reason is None or not reason.startswith(_EXCEPTION):
        return None
    return reason.removeprefix(_EXCEPTION).partition(":")[0]
