"""What a connection string means: its grammar, the families, and their formulas as terms. It needs no PyTorch."""

from rskip.formulas.folds import Fold
from rskip.formulas.gated import SAS, Highway
from rskip.formulas.parameters import AnyNorm, Bounds, Factor, Option, Positive, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.postnorm import Admin, ASkip, DeepNorm, Keel, ReZero, RSkip, WSkip, XSkip
from rskip.formulas.prenorm import (
    HybridNorm,
    Laurel,
    LayerNormScaling,
    LayerScale,
    MixLN,
    NormFormer,
    PeriLN,
    PreNorm,
    Sandwich,
    SubLN,
)
from rskip.formulas.registry import Family, UnknownFamily, find_family, list_connections, register_connection
from rskip.formulas.spec import ConnectionSpec, check_connection, parse_connection, works_on
from rskip.formulas.terms import F, Formula, Gate, Learned, Map, Mixture, Norm, Number, StackFormula, Sum, Symbol, X
from rskip.formulas.two_streams import Lanes, ResidualDual, Siamese

__all__ = [
    "ASkip", "Admin", "AnyNorm", "Bounds", "ConnectionSpec", "DeepNorm", "F", "Factor", "Family", "Fold", "Formula",
    "Gate", "Highway", "HybridNorm", "Keel", "Lanes", "Laurel", "LayerNormScaling", "LayerScale", "Learned", "Map",
    "MixLN", "Mixture", "Norm", "NormFormer", "Number", "Option", "PeriLN", "Place", "Positive", "PreNorm", "RSkip",
    "ReZero", "ResidualDual", "SAS", "Sandwich", "Siamese", "StackFormula", "SubLN", "Sum", "Symbol", "TextNorm",
    "UnknownFamily", "WSkip", "X", "XSkip", "check_connection", "find_family", "list_connections",
    "parse_connection", "register_connection", "works_on",
]  # fmt: skip
