"""Residual connections in your own model, and in models of other libraries."""

from rskip.extras import require_torch

require_torch("rskip.nn")

from rskip.nn.adapted import AdaptedBlock
from rskip.nn.adapting import Adaptation, adapt, adaptation
from rskip.nn.call_check import check_calls
from rskip.nn.hosts.stream_models import own_specs
from rskip.nn.hosts.transformers_model import from_pretrained, init_missing
from rskip.nn.residuals import LayerResiduals, Residual, Residuals, no_weight_decay, recompute_streams
from rskip.nn.spec_record import SpecRecord

__all__ = [
    "AdaptedBlock",
    "Adaptation",
    "LayerResiduals",
    "Residual",
    "Residuals",
    "SpecRecord",
    "adapt",
    "adaptation",
    "check_calls",
    "from_pretrained",
    "init_missing",
    "no_weight_decay",
    "own_specs",
    "recompute_streams",
]
