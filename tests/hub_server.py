"""A stand-in for the Hugging Face hub: what ``datasets`` asks of it, answered from a folder of data sets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REVISION = "a" * 40


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the data sets ``folder/owner/name/`` on this machine, and yield the address for ``HF_ENDPOINT``."""
    handler = type("Handler", (_Handler,), {"folder": folder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match unquote(urlsplit(self.path).path).strip("/").split("/"):
            case ["api", "datasets", owner, name, *what]:
                self._answer_about(self.folder / owner / name, what, body)
            case ["datasets", owner, name, "resolve", _, *path]:
                self._answer_file(self.folder.joinpath(owner, name, *path))
            case _:
                self._send(404)

    do_HEAD = do_POST = do_GET

    def _answer_about(self, data_set: Path, what: list[str], body: bytes) -> None:
        match what:
            case _ if not data_set.is_dir():
                self._send(404, error="RepoNotFound")
            case [_, revision, *_] if revision not in ("main", REVISION):
                self._send(404, error="RevisionNotFound")
            case [] | ["revision", _]:
                names = [path.relative_to(data_set).as_posix() for path in data_set.rglob("*") if path.is_file()]
                found = {"id": "/".join(data_set.parts[-2:]), "sha": REVISION, "private": False, "tags": []}
                self._send_json({**found, "siblings": [{"rfilename": name} for name in names]})
            case ["tree", _, *path] if (below := data_set.joinpath(*path)).is_dir():
                self._send_json([self._entry(path, data_set) for path in sorted(below.iterdir())])
            case ["paths-info", _]:
                paths = parse_qs(body.decode())["paths"] if b"paths=" in body else json.loads(body)["paths"]
                self._send_json([self._entry(data_set / path, data_set) for path in paths])
            case _:
                self._send(404, error="EntryNotFound")

    def _entry(self, path: Path, data_set: Path) -> dict[str, Any]:
        kind, size = ("directory", 0) if path.is_dir() else ("file", path.stat().st_size)
        return {"type": kind, "path": path.relative_to(data_set).as_posix(), "size": size, "oid": "b" * 40}

    def _answer_file(self, path: Path) -> None:
        if not path.is_file():
            return self._send(404, error="EntryNotFound")
        content = path.read_bytes()
        if wanted := self.headers.get("Range"):
            start, stop = wanted.removeprefix("bytes=").split("-")
            part = content[int(start) : int(stop) + 1 if stop else None]
            return self._send(206, part, Content_Range=f"bytes {start}-{int(start) + len(part) - 1}/{len(content)}")
        return self._send(200, content)

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), Content_Type="application/json")

    def _send(self, status: int, content: bytes = b"", error: str = "", **headers: str) -> None:
        self.send_response(status)
        about = {"X_Repo_Commit": REVISION, "ETag": '"c"', "Accept_Ranges": "bytes", "X_Error_Code": error, **headers}
        for name, value in {**about, "Content_Length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
