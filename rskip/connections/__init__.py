"""Residual connections: how a block's input x and its branch's output f = F(x) become the output y.

A connection is named by a spec, `[λ]family[+norm][:option=value,...]`, such as `2rskip+ln` or
`sas:gate=single`. docs/connection_details.md lists all of them with formula, meaning and source.
"""

from rskip import formulas
from rskip.extras import require_torch

require_torch("rskip.connections")

from rskip.connections.admin import AdminConnection, admin_profiling, is_profiled
from rskip.connections.attnres import AttnRes
from rskip.connections.building import (
    build_connection,
    build_stack_connection,
    described_needs,
    name_of,
    read_supplies,
)
from rskip.connections.connection import (
    HOST_NEEDS,
    Connection,
    HostNeed,
    Mixing,
    StackConnection,
    State,
    mixing_of,
)
from rskip.connections.denseformer import B2T, MUDD, X0, DenseFormer
from rskip.connections.formula import FormulaConnection, FormulaStack
from rskip.connections.frac import FracConnection
from rskip.connections.gated_residual import GatedResidual
from rskip.connections.hyper import HyperConnection, ManifoldHyperConnection
from rskip.connections.mhc_lite import MHCLite
from rskip.connections.norms import build_norm
from rskip.connections.one_stream import GPAS, NGPT, DeepDelta, Orthogonal
from rskip.connections.sas import SASConnection
from rskip.formulas import *
from rskip.settings.paper import Paper

__all__ = [
    "AdminConnection", "AttnRes", "B2T", "Connection", "DeepDelta", "DenseFormer", "FormulaConnection",
    "FormulaStack", "FracConnection", "GPAS", "GatedResidual", "HOST_NEEDS", "HostNeed", "HyperConnection",
    "MHCLite", "MUDD", "ManifoldHyperConnection", "Mixing", "NGPT", "Orthogonal", "Paper", "SASConnection",
    "StackConnection", "State", "X0", "admin_profiling", "build_connection", "build_norm", "build_stack_connection",
    "described_needs", "is_profiled", "mixing_of", "name_of", "read_supplies",
]  # fmt: skip
__all__ += formulas.__all__
