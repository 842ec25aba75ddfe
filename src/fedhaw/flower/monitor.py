"""The numbers of a running server for Prometheus.

    RuleStrategy(monitor="127.0.0.1:9464")        then    curl 127.0.0.1:9464/metrics

What a rule learnt, and what was measured, come under the names they have in the history; nothing
here knows them.
"""

from contextlib import suppress
from typing import Any

from fedhaw.flower.errors import FlowerError
from fedhaw.history import RoundRecord, numbers_of
from fedhaw.settings import InvalidSetting

EXTRA = 'pip install "fedhaw[monitor]"'


class Monitor:
    """An endpoint that Prometheus, or a person, may ask at any time.

    Args:
        address: "host:port", or a port of this machine alone.

    Raises:
        InvalidSetting: it is no address.
        FlowerError: nobody can listen there, or prometheus-client is not installed.
    """

    def __init__(self, address: str | int) -> None:
        host, port = _host_and_port(address)
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as error:
            raise FlowerError(f"monitor= needs prometheus-client; {EXTRA}.") from error
        registry = CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Any:
            return Gauge(f"fedhaw_{name}", text, labels, registry=registry)

        self._round = gauge("round", "The last round that was finished, counted from 1")
        self._rounds = gauge("rounds", "How many rounds the run is to have")
        self._seconds = gauge("seconds", "How long a part of the last round took", "part")
        self._clients = gauge(
            "clients", "How many clients were asked, lost, refused and so on", "what"
        )
        self._weight = gauge("weight", "A client's weight in the last model", "client")
        self._learnt = gauge("learnt", "What the rule learnt", "name", "client")
        self._measured = gauge("measured", "How good the last model is", "name")
        self._lost = Counter(
            "fedhaw_client_lost", "Rounds in which a client was lost", ["client"], registry=registry
        )
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise FlowerError(
                f"monitor is {address}: {error.strerror or error}; give a free address of this "
                "machine."
            ) from error
        self.port: int = self._server.server_port

    def begin(self, done: int, rounds: int) -> None:
        """The start of a run, or of one that goes on."""
        self._round.set(done)
        self._rounds.set(rounds)

    def show(self, record: RoundRecord, counts: dict[str, int]) -> None:
        """The numbers of a round that is over."""
        self._round.set(record.round + 1)
        for part, seconds in record.seconds.items():
            self._seconds.labels(part).set(seconds)
        for what, count in counts.items():
            self._clients.labels(what.removeprefix("clients-")).set(count)
        self._weight.clear()  # clients come and go
        for client, weight in record.weights.items():
            self._weight.labels(client).set(weight)
        self._learnt.clear()
        for name, value in record.metrics.items():
            for whose, number in numbers_of(value).items():
                self._learnt.labels(name, whose).set("nan" if number is None else number)
        for name, result in record.evaluation.items():
            self._measured.labels(name).set(result)
        for client in record.lost:
            self._lost.labels(client).inc()

    def close(self) -> None:
        """The end of listening."""
        with suppress(OSError):
            self._server.shutdown()
            self._server.server_close()
        self._thread.join()


class Unwatched:
    """Nobody asks how the run goes."""

    def begin(self, done: int, rounds: int) -> None:
        """Nothing."""

    def show(self, record: RoundRecord, counts: dict[str, int]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def monitor_at(address: str | int | None) -> Monitor | Unwatched:
    """The endpoint at an address; None for none."""
    return Unwatched() if address is None else Monitor(address)


def _host_and_port(address: str | int) -> tuple[str, int]:
    host, _, port = str(address).rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidSetting(
            f'monitor is {address!r}; give a port, or "host:port" such as "127.0.0.1:9464".'
        )
    return host.strip("[]") or "127.0.0.1", int(port)
