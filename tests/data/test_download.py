import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedhaw.data.checksums import md5_of
from fedhaw.data.download import PublishedFile, fetch
from fedhaw.data.errors import DataError, DownloadError
from fedhaw.files import FileWriteError

CONTENT = b"images " * 5000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, breaks it off, or has nothing, by path; counts what it was asked for."""

    asked: list[str] = []  # noqa: RUF012 - replaced for each test

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:100] if self.path.startswith("/short") else CONTENT)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(Handler, "asked", [])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address on this machine where nothing listens."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    return f"http://127.0.0.1:{port}"


def published(*urls: str, md5: str | None = None) -> PublishedFile:
    return PublishedFile("images.gz", urls, md5 or md5_of([CONTENT]))


def test_a_file_is_fetched_once(server: str, tmp_path: Path) -> None:
    file = published(f"{server}/images.gz")
    folder = tmp_path / "new" / "folder"
    assert fetch(file, folder).read_bytes() == CONTENT
    assert fetch(file, folder) == folder / "images.gz"
    assert Handler.asked == ["/images.gz"]
    assert [path.name for path in folder.iterdir()] == ["images.gz"]


def test_a_damaged_file_is_fetched_again(server: str, tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(CONTENT[:-1])
    assert fetch(published(f"{server}/images.gz"), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("first", ["missing", "short"])
def test_the_next_mirror_is_tried(server: str, tmp_path: Path, first: str) -> None:
    file = published(f"{server}/{first}/images.gz", f"{server}/images.gz")
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert Handler.asked == [f"/{first}/images.gz", "/images.gz"]


def test_another_file_than_expected_is_not_kept(server: str, tmp_path: Path) -> None:
    file = published(f"{server}/images.gz", md5="0" * 32)
    (tmp_path / "images.gz").write_bytes(b"what was there before")
    with pytest.raises(DownloadError, match="sent another file, of MD5"):
        fetch(file, tmp_path)
    assert (tmp_path / "images.gz").read_bytes() == b"what was there before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_is_gone_says_what_to_put_where(server: str, tmp_path: Path) -> None:
    url = f"{server}/missing/images.gz"
    with pytest.raises(DownloadError, match="answered 404") as caught:
        fetch(published(url), tmp_path)
    assert url in str(caught.value)
    assert str(tmp_path / "images.gz") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_one_clear_sentence(nobody: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        fetch(published(f"{nobody}/images.gz"), tmp_path)
    host = nobody.removeprefix("http://")
    assert str(caught.value) == (
        f"images.gz could not be downloaded ({host} cannot be reached or broke off); fetch "
        f"{nobody}/images.gz on a machine with a network and put it at {tmp_path / 'images.gz'}."
    )


def test_a_file_that_cannot_be_written_is_a_matter_of_the_disk(server: str, tmp_path: Path) -> None:
    (tmp_path / "images.gz").mkdir()  # in the way
    with pytest.raises(FileWriteError, match="Could not write"):
        fetch(published(f"{server}/images.gz"), tmp_path)
