"""Makes `--cpu --distributed-world-size N` work without torchrun.

fairseq starts one process per GPU. Without a GPU it fails at an assertion, or would start no process. With this patch
the number of processes on CPU is the world size.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from fairseq_compat.patch import Patch, wraps

TORCHRUN_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def spawns_on_cpu(cfg: Any) -> bool:
    """Whether fairseq would start its own processes on one machine, and the user requested the CPU."""
    distributed = cfg.distributed_training
    return (
        cfg.common.cpu
        and distributed.distributed_world_size > 1
        and distributed.distributed_init_method is None
        and distributed.distributed_port <= 0
        and not distributed.distributed_no_spawn
        and not all(name in os.environ for name in TORCHRUN_VARIABLES)
    )


def free_port() -> int:
    """A TCP port that is free on this machine."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def spawn_by_world_size(module: Any) -> None:
    """Wraps `fairseq.distributed.utils.call_main`."""

    @wraps(module, "call_main")
    def call_main(original: Any, cfg: Any, main: Any, **kwargs: Any) -> None:
        if not spawns_on_cpu(cfg):
            original(cfg, main, **kwargs)
            return
        import torch

        distributed = cfg.distributed_training
        distributed.distributed_init_method = f"tcp://localhost:{free_port()}"
        distributed.distributed_num_procs = distributed.distributed_world_size
        kwargs["start_rank"] = distributed.distributed_rank
        distributed.distributed_rank = None
        torch.multiprocessing.spawn(
            fn=module.distributed_main, args=(main, cfg, kwargs), nprocs=distributed.distributed_world_size
        )


CPU_SPAWN = Patch(
    name="cpu-spawn",
    symptom="--cpu --distributed-world-size 2: AssertionError: world size is 2 but have 0 available devices",
    after={"fairseq.distributed.utils": spawn_by_world_size},
)
