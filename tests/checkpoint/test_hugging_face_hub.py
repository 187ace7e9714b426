"""`hf:OWNER/NAME`: only the files that a reader needs come, from a server that answers as the Hub does."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from urllib.parse import urlparse

import pytest

pytest.importorskip("huggingface_hub", reason="needs the extra huggingface")
COMMIT = "a" * 40
SCRIPT = """
import sys
from rskip.checkpoint.hugging_face import hub_folder
for name in sys.argv[1:]:
    try:
        folder = hub_folder(name)
        print(folder.name[:4], *sorted(path.name for path in folder.iterdir()))
    except (ValueError, OSError) as error:
        print(error)
"""


class Hub(http.server.ThreadingHTTPServer):
    """Serves the repository org/tiny with these files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = files
        self.sent: list[str] = []


class Answer(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        path = urlparse(self.path).path
        tags = {name: sha1(content).hexdigest() for name, content in self.server.files.items()}
        if path in (f"/api/models/org/tiny/revision/{name}" for name in ("main", COMMIT)):
            siblings = [{"rfilename": name} for name in tags]
            self.answer(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode())
        elif path == f"/api/models/org/tiny/tree/{COMMIT}":
            files = [
                {"type": "file", "path": name, "oid": tag, "size": len(self.server.files[name])}
                for name, tag in tags.items()
            ]
            self.answer(json.dumps(files).encode())
        elif path.startswith(f"/org/tiny/resolve/{COMMIT}/") and (name := path.split("/", 5)[-1]) in tags:
            if self.command == "GET":
                self.server.sent.append(name)
            self.answer(self.server.files[name], etag=tags[name])
        else:
            known = path.startswith("/api/models/org/tiny/")
            self.answer(b"{}", status=404, error="RevisionNotFound" if known else "RepoNotFound")

    do_GET = do_HEAD

    def answer(self, body: bytes, *, status: int = 200, etag: str = "", error: str = "") -> None:
        self.send_response(status)
        headers = {
            "Content-Length": str(len(body)),
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{etag}"',
            "X-Error-Code": error,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    names = ("config.json", "source.spm", "vocab.json", "README.md", "modeling.py", "tf_model.h5", "onnx/config.json")
    with Hub({name: name.encode() for name in names}) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def folders(hub: Hub, cache: Path, *names: str, offline: bool = False) -> list[str]:
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(cache)}
    environment |= {"HF_HUB_OFFLINE": "1" if offline else "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names], env=environment, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_settings_vocabularies_and_one_kind_of_weights_come_and_stay(hub: Hub, tmp_path: Path) -> None:
    hub.files |= {name: b"weights" for name in ("model-00001-of-00001.safetensors", "pytorch_model.bin")}
    wanted = ["config.json", "model-00001-of-00001.safetensors", "source.spm", "vocab.json"]
    mistakes = ["hf:org/other", "hf:org/tiny@none", "hf:tiny", "hf:org/ti ny"]
    found, *errors = folders(hub, tmp_path, "hf:org/tiny", *mistakes)
    assert found.split() == ["aaaa", *wanted]
    assert errors[0].startswith("the Hub gives no model org/other; check the spelling; a private model needs HF_TOKEN")
    assert errors[1].startswith("the Hub gives no model org/tiny with the revision none; check the spelling")
    assert errors[2] == "hf:tiny is not a model of the Hub: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION"
    assert errors[3].startswith("hf:org/ti ny is not a model of the Hub: Repo id must use alphanumeric chars")
    assert sorted(hub.sent) == wanted

    advice = "copy the model's folder here and give its path, or set HF_HOME or HF_ENDPOINT"
    offline = folders(hub, tmp_path, f"hf:org/tiny@{COMMIT}", "hf:org/other", offline=True)
    assert offline == [found, f"hf:org/other is not in the cache, and HF_HUB_OFFLINE forbids downloads: {advice}"]
    hub.shutdown()
    hub.server_close()
    gone = f"hf:org/other is not in the cache, and the Hub can't be reached: {advice}"
    assert folders(hub, tmp_path, "hf:org/tiny", "hf:org/other") == [found, gone]


def test_weights_of_pytorch_come_if_there_are_no_others(hub: Hub, tmp_path: Path) -> None:
    hub.files |= {"pytorch_model.bin": b"weights", "text/pipeline.json": b"of rskip export"}
    [found] = folders(hub, tmp_path, "hf:org/tiny")
    assert found.split()[1:] == ["config.json", "pytorch_model.bin", "source.spm", "text", "vocab.json"]
