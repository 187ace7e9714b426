"""A system in a separate process.

In one process the systems affect each other: CTranslate2 loads another OpenMP library than PyTorch, after which PyTorch
took 1.6 to 2 times as long.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

from decoding.systems import Tokens, build_system


class SystemProcess:
    """A `System` that waits for requests in another process.

    `seconds` is the time of its last translation there, and `mib` the peak GPU memory meanwhile.
    """

    def __init__(self, name: str, model: Any, source: Any, target: Any, search: Any, **settings: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        arguments = (other, name, model, source, target, search, settings)
        self.process = context.Process(target=_serve, args=arguments)
        self.process.start()
        other.close()
        self.connection.recv()
        self.seconds, self.mib = 0.0, 0

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        self.connection.send((sentences, batch_size))
        found, self.seconds, self.mib = self.connection.recv()
        return found

    def close(self) -> None:
        """Ends the process."""
        self.connection.close()
        self.process.join()


def _serve(
    connection: Connection, name: str, model: Any, source: Any, target: Any, search: Any, settings: dict[str, Any]
) -> None:
    from rskip.cpu.threads import set_threads

    on_gpu = settings.get("device", "cpu") != "cpu"
    if on_gpu:
        import torch

        torch.cuda.set_device(settings["device"])
    set_threads(settings["threads"])
    system = build_system(name, model, source, target, search, **settings)
    connection.send("ready")
    try:
        while True:
            request = connection.recv()
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            found = system.translate(*request)  # tokens are on the host, so the GPU has finished
            seconds = time.perf_counter() - start
            connection.send((found, seconds, torch.cuda.max_memory_allocated() >> 20 if on_gpu else 0))
    except (EOFError, BrokenPipeError):  # the parent has ended
        pass
    finally:
        if hasattr(system, "close"):
            system.close()
