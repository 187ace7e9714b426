"""The public names of rskip.connections and rskip.nn. Users' code has them: a name goes or comes on purpose only."""

from __future__ import annotations

import rskip.connections
import rskip.nn

CONNECTIONS = """
    ASkip Admin AdminConnection AnyNorm AttnRes B2T Bounds Connection ConnectionSpec DeepDelta DeepNorm DenseFormer F
    Factor Family Fold Formula FormulaConnection FormulaStack FracConnection GPAS Gate GatedResidual HOST_NEEDS Highway
    HostNeed HybridNorm HyperConnection Keel Lanes Laurel LayerNormScaling LayerScale Learned MHCLite MUDD
    ManifoldHyperConnection Map MixLN Mixing Mixture NGPT Norm NormFormer Number Option Orthogonal Paper PeriLN Place
    Positive PreNorm RSkip ReZero ResidualDual SAS SASConnection Sandwich Siamese StackConnection StackFormula State
    SubLN Sum Symbol TextNorm UnknownFamily WSkip X X0 XSkip admin_profiling build_connection build_norm
    build_stack_connection check_connection described_needs find_family is_profiled list_connections mixing_of name_of
    parse_connection read_supplies register_connection works_on
"""
NN = """
    Adaptation AdaptedBlock LayerResiduals Residual Residuals SpecRecord adapt adaptation
    check_calls from_pretrained init_missing no_weight_decay own_specs recompute_streams
"""


def test_the_public_names_are_these():
    for module, names in ((rskip.connections, CONNECTIONS), (rskip.nn, NN)):
        assert sorted(module.__all__) == sorted(names.split())
        assert all(hasattr(module, name) for name in module.__all__)
