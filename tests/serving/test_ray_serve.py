"""deploy/ray_serve.py, with two replicas."""

from __future__ import annotations

import json
import socket
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

serve = pytest.importorskip("ray.serve", reason="needs ray[serve]", exc_type=ImportError)


@pytest.mark.slow
def test_two_replicas_answer(root: Path, monkeypatch: Any) -> None:
    import ray

    monkeypatch.setenv("RSKIP_MODELS", str(root / "checkpoints/multi30k_en_de/2rskip_ln"))
    monkeypatch.setenv("PYTHONPATH", str(root), prepend=":")
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        from deploy.ray_serve import app

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(app)

        def translated() -> str:
            body = json.dumps({"q": "A dog runs.", "source": "en", "target": "de"}).encode()
            kind = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/translate", body, kind)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(json.load(answer)["translatedText"])

        answers: list[str] = []
        clients = [threading.Thread(target=lambda: answers.extend(translated() for _ in range(5))) for _ in range(8)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert answers == ["Ein Hund rennt."] * 40
        (status,) = serve.status().applications["default"].deployments.values()
        assert status.replica_states == {"RUNNING": 2}
    finally:
        serve.shutdown()
        ray.shutdown()
