"""Residual connections: how a block's input x and its branch's output f = F(x) become the output y.

A connection is named by a spec, `[λ]family[+norm][:option=value,...]`, such as `2rskip+ln` or
`sas:gate=single`. docs/connections.md lists all of them with formula, meaning and source.
"""

from rskip.extras import require_torch

require_torch("rskip.connections")

from rskip.connections.adaptive import ASkip
from rskip.connections.admin import Admin, admin_profiling, is_profiled
from rskip.connections.attnres import AttnRes
from rskip.connections.b2t import B2T
from rskip.connections.connection import HOST_NEEDS, Connection, StackConnection, State
from rskip.connections.deep_delta import DeepDelta
from rskip.connections.deepnorm import DeepNorm
from rskip.connections.denseformer import DenseFormer
from rskip.connections.frac import FracConnection
from rskip.connections.gpas import GPAS
from rskip.connections.highway import Highway
from rskip.connections.hybridnorm import HybridNorm
from rskip.connections.hyper import HyperConnection, ManifoldHyperConnection
from rskip.connections.laurel import Laurel
from rskip.connections.mhc_lite import MHCLite
from rskip.connections.mixing import Mixing, mixing_of
from rskip.connections.mudd import MUDD
from rskip.connections.ngpt import NGPT
from rskip.connections.normformer import NormFormer
from rskip.connections.norms import build_norm
from rskip.connections.options import Bounds, Option, Positive
from rskip.connections.orthogonal import Orthogonal
from rskip.connections.place import Place
from rskip.connections.prenorm import PreNorm
from rskip.connections.prenorm_by_depth import Keel, LayerNormScaling, MixLN
from rskip.connections.registry import Factor, Family, Fold, find_family, list_connections, register_connection
from rskip.connections.residual_dual import ResidualDual
from rskip.connections.rskip import RSkip, WSkip, XSkip
from rskip.connections.sandwich import PeriLN, Sandwich
from rskip.connections.sas import SAS
from rskip.connections.scaled_branch import LayerScale, ReZero
from rskip.connections.siamese import Siamese
from rskip.connections.spec import (
    ConnectionSpec,
    build_connection,
    build_stack_connection,
    check_connection,
    parse_connection,
)
from rskip.connections.subln import SubLN
from rskip.connections.x0 import X0
from rskip.kernel_forms import GatedSum, NormalisedSum
from rskip.settings.paper import Paper

__all__ = [
    "HOST_NEEDS",
    "SAS",
    "ASkip",
    "Bounds",
    "Connection",
    "ConnectionSpec",
    "Factor",
    "Family",
    "Fold",
    "GatedSum",
    "Highway",
    "Option",
    "Paper",
    "Place",
    "Positive",
    "PreNorm",
    "RSkip",
    "StackConnection",
    "State",
    "WSkip",
    "XSkip",
    "build_connection",
    "build_norm",
    "build_stack_connection",
    "check_connection",
    "find_family",
    "list_connections",
    "parse_connection",
    "register_connection",
    "Admin",
    "admin_profiling",
    "is_profiled",
    "AttnRes",
    "B2T",
    "DeepNorm",
    "DenseFormer",
    "HyperConnection",
    "ManifoldHyperConnection",
    "Laurel",
    "Keel",
    "LayerNormScaling",
    "MixLN",
    "ResidualDual",
    "PeriLN",
    "Sandwich",
    "LayerScale",
    "ReZero",
    "Siamese",
    "SubLN",
    "NormFormer",
    "HybridNorm",
    "Mixing",
    "NormalisedSum",
    "mixing_of",
    "X0",
    "GPAS",
    "Orthogonal",
    "NGPT",
    "MUDD",
    "DeepDelta",
    "FracConnection",
    "MHCLite",
]
