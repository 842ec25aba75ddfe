"""`fedhaw watch`: the page of a report, which keeps up with runs that go on."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhaw.cli.options import examples
from fedhaw.errors import FedhawError, importing, shortened

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from fedhaw.reports.live import LivePage

EXAMPLES = examples(
    "fedhaw watch fedhaw-runs",
    "fedhaw watch monday tuesday --port 9000",
)

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WatchError(FedhawError, RuntimeError):
    """What a watching server needs is not there: its packages, its port, or a folder."""


def watch(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Folders that hold runs, at any depth, of simulations or Flower servers; runs may "
            "begin later.",
        ),
    ],
    port: Annotated[
        int, typer.Option(help="Of the page's address; 0 takes one that is free.", min=0, max=65535)
    ] = 8642,
    host: Annotated[
        str, typer.Option(help="Who else may look: by default nobody but this machine.")
    ] = LOOPBACK[0],
) -> None:
    """Watch runs in a browser: a page that grows with their rounds. Ctrl-C ends it."""
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise WatchError(
            f"There is no folder {shortened(str(missing[0]))}; give a folder of runs, and make it "
            "first if they are to begin later."
        )
    from fedhaw.reports.live import LivePage

    with importing("fedhaw watch", "watch", WatchError):
        import uvicorn

        application = make_application(LivePage(folders), (*LOOPBACK, host))
    listening = _listening(host, port)
    config = uvicorn.Config(
        application, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    shown = f"[{host}]" if ":" in host else host
    print(f"watching on http://{shown}:{listening.getsockname()[1]}/ (Ctrl-C ends it)", flush=True)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        print("ended")


def make_application(live: "LivePage", hosts: Sequence[str]) -> "Starlette":
    """The server of one page.

    Args:
        live: the page.
        hosts: by what names the server may be asked; a foreign page that has its own name lead
            here is refused.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route

    # Plain functions: they read files, and run in a thread of their own.
    def page(request: Request) -> Response:
        return HTMLResponse(live.page())

    def news(request: Request) -> Response:
        seen = request.query_params.get("seen", "")
        told = live.news(int(seen) if seen.isdecimal() and len(seen) < 19 else -1)
        return Response(status_code=204) if told is None else JSONResponse(told)

    # An address of version 6 is cut at its first colon when it is compared.
    names = [host.partition(":")[0] or "[" for host in hosts]
    return Starlette(
        routes=[Route("/", page), Route("/news", news)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False)],
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        raise WatchError(
            f"The address {host}, port {port}, cannot be used ({error.strerror or error}); choose "
            "another with --port, 0 for any that is free."
        ) from error
    return listening
