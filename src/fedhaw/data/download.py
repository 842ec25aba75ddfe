"""Fetching a published file once, checked before it is believed."""

import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fedhaw.data.checksums import md5_of_file
from fedhaw.data.errors import DownloadError
from fedhaw.files import replacing

SECONDS_OF_SILENCE = 30.0
"""A server that sends nothing for so long is given up."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that can be had from the public.

    Attributes:
        name: its file name.
        urls: where it can be had, tried in order.
        md5: its MD5.
    """

    name: str
    urls: tuple[str, ...]
    md5: str


def fetch(file: PublishedFile, folder: Path, progress: bool = True) -> Path:
    """The place of a file in a folder, to which it is downloaded unless it is there already.

    It is written under another name and takes its own only when its checksum is right, so a
    download cut short leaves nothing behind.

    Args:
        file: what to fetch.
        folder: where to put it; made if missing.
        progress: show a progress bar, if there is a terminal to show it on.
    """
    target = folder / file.name
    if target.is_file() and md5_of_file(target) == file.md5:
        return target
    reasons = []
    for url in file.urls:
        try:
            with replacing(target) as temporary:
                _download(url, temporary, file, progress)
            return target
        except DownloadError as error:
            reasons.append(str(error))
    raise DownloadError(
        f"{file.name} could not be downloaded ({'; '.join(reasons)}); fetch {file.urls[0]} on a "
        f"machine with a network and put it at {target}."
    )


def _download(url: str, path: Path, file: PublishedFile, progress: bool) -> None:
    """A download to `path`; the DownloadError it raises holds the bare reason."""
    import pooch
    import requests

    download = pooch.HTTPDownloader(
        progressbar=progress and sys.stderr.isatty(), timeout=SECONDS_OF_SILENCE
    )
    try:
        download(url, str(path), None)
    # Caught here, before `replacing` takes them for trouble with the disk: they are OSErrors.
    except requests.HTTPError as error:
        status = "an error" if error.response is None else error.response.status_code
        raise DownloadError(f"{_host(url)} answered {status}") from error
    except requests.Timeout as error:
        raise DownloadError(f"{_host(url)} did not answer in time") from error
    except requests.RequestException as error:
        raise DownloadError(f"{_host(url)} cannot be reached or broke off") from error
    found = md5_of_file(path)
    if found != file.md5:
        raise DownloadError(f"{_host(url)} sent another file, of MD5 {found}, not {file.md5}")


def _host(url: str) -> str:
    return urlsplit(url).netloc
