"""The server's application behind Ray Serve's proxy, in two replicas, on one machine or a cluster.

    pip install "ray[serve]"
    RSKIP_MODELS="checkpoints/multi30k_en_de/2rskip_ln" serve run deploy.ray_serve:app

RSKIP_MODELS names the models, separated by spaces, as `rskip serve --model` does. Each replica loads them, and
translates with RSKIP_CPUS threads (default: 1). /metrics and /ready answer for the replica that gets the request.
"""

from __future__ import annotations

import os

from ray import serve

from rskip.cpu.threads import set_threads
from rskip.serving.access_log import to_stderr
from rskip.serving.app import build_app
from rskip.serving.models import load_models
from rskip.serving.service import Service
from rskip.serving.settings import ServerSettings

CPUS = int(os.environ.get("RSKIP_CPUS", "1"))  # of each replica


def replica() -> object:
    """The application of one replica, which has its own models, queue and thread."""
    set_threads(CPUS)
    models = load_models(os.environ["RSKIP_MODELS"].split())
    return build_app(Service(models, ServerSettings()), hosts=["localhost", "127.0.0.1"], log=to_stderr)


@serve.deployment(
    num_replicas=2,
    ray_actor_options={
        "num_cpus": CPUS,
        "runtime_env": {"env_vars": {"RSKIP_MODELS": os.environ["RSKIP_MODELS"], "RSKIP_CPUS": str(CPUS)}},
    },
    max_ongoing_requests=100,
    graceful_shutdown_timeout_s=70,
)
@serve.ingress(replica)
class Translation:
    """The deployment."""


app = Translation.bind()
