"""The text of a spec: what it means, its canonical form, its slug, and what is said of one that is wrong."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from rskip.connections import (
    ConnectionSpec,
    build_connection,
    build_norm,
    list_connections,
    parse_connection,
)
from rskip.formulas.parameters import LEAST, MOST, Option
from rskip.settings.errors import SettingError
from tests.connections.every_connection import OWN_FAMILIES

CANONICAL = {  # written: (canonical, slug)
    "1xskip": ("1xskip", "1xskip"),
    "2.0xskip": ("2xskip", "2xskip"),
    "0.50xskip": ("0.5xskip", "0p5xskip"),
    ".5xskip": ("0.5xskip", "0p5xskip"),
    "1e-2xskip": ("0.01xskip", "0p01xskip"),
    "4096.0xskip": ("4096xskip", "4096xskip"),
    "+2xskip": ("2xskip", "2xskip"),
    "3xSkip+LN": ("3xskip+ln", "3xskip_ln"),
    "2rSkip+LN": ("2rskip+ln", "2rskip_ln"),
    " 2.0rskip+bn\n": ("2rskip+bn", "2rskip_bn"),
    "1xskip+ln:branch_scale=2.0": ("1xskip+ln:branch_scale=2", "1xskip_ln-branch_scale_2"),
    "1xskip:branch_scale=1": ("1xskip", "1xskip"),
    "wskip+ln:init=1": ("wskip+ln", "wskip_ln"),
    "wskip+ln:init=2": ("wskip+ln:init=2", "wskip_ln-init_2"),
    "sas+ln": ("sas", "sas"),
    "sas+bn": ("sas+bn", "sas_bn"),
    "2xSkip+GN1": ("2xskip+gn1", "2xskip_gn1"),
    "sas:gate=full,norm_term=true": ("sas", "sas"),
    "sas:gate=single": ("sas:gate=single", "sas-gate_single"),
    "sas: norm_term = False": ("sas:norm_term=false", "sas-norm_term_false"),
    "sas:beta_bias=-3,alpha_bias=3": ("sas:alpha_bias=3,beta_bias=-3", "sas-alpha_bias_3-beta_bias_m3"),
    "sas:gate=single,gamma=free": ("sas:gamma=free,gate=single", "sas-gamma_free-gate_single"),
    "highway:bias=-3": ("highway", "highway"),
    "highway:bias=-1.5": ("highway:bias=-1.5", "highway-bias_m1p5"),
    "highway:gate=shortcut": ("highway:gate=shortcut", "highway-gate_shortcut"),
    "prenorm+rms": ("prenorm+rms", "prenorm_rms"),
}


def test_canonical_form_and_slug():
    for written, canonical_and_slug in CANONICAL.items():
        spec = parse_connection(written)
        assert (str(spec), spec.slug) == canonical_and_slug
        assert parse_connection(str(spec)) == spec


def test_parts_of_a_spec():
    rskip = parse_connection("2rskip+ln")
    assert (rskip.family, rskip.factor, rskip.norm, rskip.options) == ("rskip", 2, "ln", ())
    xskip = parse_connection("0.5xskip:branch_scale=2")
    assert (xskip.factor, xskip.norm) == (0.5, None)
    assert xskip.settings == {"scale": 0.5, "branch_scale": 2, "norm": None}
    assert parse_connection("sas:gate=single").settings == {
        "norm": "ln", "gate": "single", "gamma": "tied", "norm_term": True, "alpha_bias": 0, "beta_bias": 0,
        "host": "postnorm",
    }  # fmt: skip
    assert parse_connection("highway").settings == {"gate": "transform", "bias": -3}


def test_a_spec_built_from_parts_is_the_parsed_one():
    assert ConnectionSpec("rskip", 2.0, "ln") == parse_connection("2rskip+ln")
    parts = ConnectionSpec("sas", options=(("norm_term", False), ("beta_bias", -3.0), ("alpha_bias", 0)))
    assert parts == parse_connection("sas:norm_term=false,beta_bias=-3")
    assert hash(parts) == hash(parse_connection("sas+ln:beta_bias=-3,norm_term=false"))
    assert len(build_connection(ConnectionSpec("rskip", 3, "ln"), 4).norms) == 3


def values(option: Option) -> st.SearchStrategy:
    """What an option may be, as its own type."""
    if option.kind is bool:
        return st.booleans()
    if option.kind is str:
        return st.sampled_from(option.words)
    numbers = st.integers if option.kind is int else st.floats
    return numbers(option.bounds.ge, option.bounds.le)


@st.composite
def specs(draw) -> ConnectionSpec:
    family = draw(st.sampled_from(OWN_FAMILIES))
    factor = None
    if family.factor is not None:
        factor = draw(st.integers(1, 100) if family.factor.integer else st.floats(LEAST, MOST))
    options = {name: draw(values(option)) for name, option in family.options.items() if draw(st.booleans())}
    norm = draw(st.sampled_from(family.norms))
    try:
        return ConnectionSpec(family.name, factor, norm, tuple(options.items()))
    except SettingError:
        assert options, "only options can contradict each other or the norm"
        reject()


@settings(deadline=None)
@given(specs())
def test_every_spec_is_read_back_from_its_text(spec):
    assert parse_connection(str(spec)) == spec
    assert str(parse_connection(str(spec).upper())) == str(spec)
    assert re.fullmatch(r"[a-z0-9_-]+", spec.slug)


@settings(deadline=None)
@given(specs(), specs())
def test_different_specs_have_different_slugs(one, other):
    assert (one == other) == (str(one) == str(other)) == (one.slug == other.slug)


FORM = "[λ]family[+norm][:option=value,...], such as 2rskip+ln or sas:gate=single"
ERRORS = {  # text: a part of what is expected in place of it, or of the advice
    "2rskp+ln": "did you mean '2rskip+ln'?",
    "3xskp+ln:branch_scale=2": "did you mean '3xskip+ln:branch_scale=2'?",
    "2frec+ln": "did you mean 'frac+ln'?",
    "qqqq": "such as 2rskip+ln",
    "postnorm": "did you mean '1xskip+ln'?",
    "Hyper-Connections": "did you mean 'hyper'?",
    "hyperconnections": "did you mean 'hyper'?",
    "attention residuals": "did you mean 'attnres'?",
    "deepseek": "did you mean 'mhc+rms:exit=head,",
    "DeepSeek-V4.1": "reads=previous",
    "kimi": "did you mean 'attnres+rms:layers=12,",
    "qwen4": "did you mean 'gated_residual:rank=320'?",
    "hy4": "residual=identity",
    "resnet": "did you mean '1xskip'?",
    "post-ln": "did you mean '1xskip+ln'?",
    "gpt2": "did you mean 'prenorm+ln'?",
    "": FORM,
    "2 rskip + ln": "did you mean '2rskip+ln'?",
    "2rskip_ln": "did you mean '2rskip+ln'?",
    "Pre-norm+LN": "did you mean 'prenorm+ln'?",
    "rskip": "write '1rskip+ln'",
    "2xskip+ln+ln": FORM,
    "2rskip": "a normalisation",
    "1.5rskip+ln": "an integer from 1 to 100",
    "101rskip+ln": "an integer from 1 to 100",
    "0rskip+ln": "an integer from 1 to 100",
    "-2xskip+ln": "a number from 1e-06 to 1e+06",
    "xskip": "write '1xskip'",
    "2prenorm+ln": "without a λ",
    "wskip:init=2": "write 'wskip+ln:init=2'",
    "prenorm+bn": "did you mean 'prenorm+ln'?",
    "highway+ln": "without a normalisation",
    "2rskip+layernorm": "did you mean '2rskip+ln'?",
    "2xskip+": "xskip with ln or rms",
    "highway:gaet=full": "did you mean 'gate'?",
    "2rskip+ln:init=1": "without options",
    "sas:gate=singel": "did you mean 'single'?",
    "sas:norm_term=no": "true or false",
    "sas:alpha_bias=high": "a number from",
    "wskip+ln:init=nan": "a number from",
    "wskip+ln:floor=1": "init greater than floor",
    "ddl:init=2": "from 1e-06 to 1.999999",
    "sas:gate=": "option=value",
    "sas:gate=full,gate=single": "only once",
    "sas+bn:norm_term=false": "+bn only with norm_term=true",
    "sas:gamma=free,norm_term=false": "gamma=free only with norm_term=true",
}


def refusal(call, *args, **settings) -> SettingError:
    with pytest.raises(SettingError) as error:
        call(*args, **settings)
    return error.value


def test_a_wrong_spec_is_refused_in_one_line():
    for text, expected in ERRORS.items():
        error = refusal(parse_connection, text)
        assert error.name == "connection" and str(error) == str(refusal(build_connection, text, 8))
        assert error.sentence("--connection").startswith(f"--connection is {text!r}: expected ")
        assert expected in str(error) and len(str(error)) <= 400
    for factor in (math.nan, math.inf, -math.inf):
        assert "as λ" in str(refusal(ConnectionSpec, "xskip", factor))
    for wrong in (["1xskip"], None, "1" * 10**6 + "!"):
        assert FORM in str(refusal(parse_connection, wrong)) and len(str(refusal(build_connection, wrong, 8))) <= 200


def test_bn_and_gn1_are_for_images_and_prenorm_for_text():
    for spec in ("2xskip+bn", "2rskip+bn", "wskip+gn1", "sas+bn", "sas+gn1"):
        error = refusal(build_connection, spec, 8)
        assert (error.name, error.problem) == ("connection", f"is {spec!r}")
        assert error.expected == refusal(build_norm, "bn", 8).expected
        build_connection(spec, 8, feature_dim=1)
    assert refusal(build_norm, "bn", 8).expected.startswith("ln or rms: bn and gn1 are for feature maps")
    assert "prenorm works only on sequences" in str(refusal(build_connection, "prenorm+ln", 8, feature_dim=1))
    wrong = str(refusal(build_norm, "rmsnorm", 8))
    assert wrong == "norm is 'rmsnorm': expected ln or rms or gn1 or bn (did you mean 'rms'?)"


def test_features_are_counted_and_lie_last_or_second():
    for make in (lambda n: build_connection("1xskip", n), lambda n: build_norm("ln", n)):
        for features in (0, -3, 2.5, "8", None):
            assert refusal(make, features).name == "features"
    for feature_dim in (0, 2, -2, None):
        assert refusal(build_connection, "1xskip", 8, feature_dim=feature_dim).name == "feature_dim"


def test_families_describe_themselves():
    names = [family.name for family in list_connections()]
    assert names == sorted(names)
    for family in OWN_FAMILIES:
        assert family.formula and family.source, family.name
        if family.paper.url is not None:
            assert family.paper.url.startswith("https://") and family.paper.authors, family.name
