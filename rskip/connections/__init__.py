"""Residual connections: how a block's input x and its branch's output f = F(x) become the output y.

A connection is named by a spec, `[λ]family[+norm][:option=value,...]`, such as `2rskip+ln` or
`sas:gate=single`. docs/connections.md lists all of them with formula, meaning and source.
"""

from rskip.extras import require_torch

require_torch("rskip.connections")

from rskip.connections.admin import AdminConnection, admin_profiling, is_profiled
from rskip.connections.attnres import AttnRes
from rskip.connections.b2t import B2T
from rskip.connections.building import (
    build_connection,
    build_stack_connection,
    described_needs,
    name_of,
    read_supplies,
)
from rskip.connections.connection import HOST_NEEDS, Connection, HostNeed, StackConnection, State
from rskip.connections.deep_delta import DeepDelta
from rskip.connections.denseformer import DenseFormer
from rskip.connections.formula import FormulaConnection, FormulaStack
from rskip.connections.frac import FracConnection
from rskip.connections.gpas import GPAS
from rskip.connections.hyper import HyperConnection, ManifoldHyperConnection
from rskip.connections.mhc_lite import MHCLite
from rskip.connections.mixing import Mixing, mixing_of
from rskip.connections.mudd import MUDD
from rskip.connections.ngpt import NGPT
from rskip.connections.norms import build_norm
from rskip.connections.orthogonal import Orthogonal
from rskip.connections.sas import SASConnection
from rskip.connections.x0 import X0
from rskip.formulas import (
    SAS,
    Admin,
    AnyNorm,
    ASkip,
    Bounds,
    ConnectionSpec,
    DeepNorm,
    F,
    Factor,
    Family,
    Fold,
    Formula,
    Gate,
    Highway,
    HybridNorm,
    Keel,
    Laurel,
    LayerNormScaling,
    LayerScale,
    Learned,
    Map,
    MixLN,
    Mixture,
    Norm,
    NormFormer,
    Number,
    Option,
    PeriLN,
    Place,
    Positive,
    PreNorm,
    ResidualDual,
    ReZero,
    RSkip,
    Sandwich,
    Siamese,
    StackFormula,
    SubLN,
    Sum,
    Symbol,
    TextNorm,
    UnknownFamily,
    WSkip,
    X,
    XSkip,
    check_connection,
    find_family,
    list_connections,
    parse_connection,
    register_connection,
    works_on,
)
from rskip.settings.paper import Paper

__all__ = [
    "ASkip", "Admin", "AdminConnection", "AnyNorm", "AttnRes", "B2T", "Bounds", "Connection", "ConnectionSpec",
    "DeepDelta", "DeepNorm", "DenseFormer", "F", "Factor", "Family", "Fold", "Formula", "FormulaConnection",
    "FormulaStack", "FracConnection", "GPAS", "Gate", "HOST_NEEDS", "Highway", "HostNeed", "HybridNorm",
    "HyperConnection", "Keel", "Laurel", "LayerNormScaling", "LayerScale", "Learned", "MHCLite", "MUDD",
    "ManifoldHyperConnection", "Map", "MixLN", "Mixing", "Mixture", "NGPT", "Norm", "NormFormer", "Number", "Option",
    "Orthogonal", "Paper", "PeriLN", "Place", "Positive", "PreNorm", "RSkip", "ReZero", "ResidualDual", "SAS",
    "SASConnection", "Sandwich", "Siamese", "StackConnection", "StackFormula", "State", "SubLN", "Sum", "Symbol",
    "TextNorm", "UnknownFamily", "WSkip", "X", "X0", "XSkip", "admin_profiling", "build_connection", "build_norm",
    "build_stack_connection", "check_connection", "described_needs", "find_family", "is_profiled", "list_connections",
    "mixing_of", "name_of", "parse_connection", "read_supplies", "register_connection", "works_on",
]  # fmt: skip
