"""The text of a spec: what it means, its canonical form, its slug, and what is said of one that is wrong."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rskip.connections import (
    Choice,
    ConnectionSpec,
    Flag,
    build_connection,
    build_norm,
    list_connections,
    parse_connection,
)

BUILT_IN = ("highway", "prenorm", "rskip", "sas", "wskip", "xskip")

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


@pytest.mark.parametrize("written", CANONICAL)
def test_canonical_form_and_slug(written):
    spec = parse_connection(written)
    assert (str(spec), spec.slug) == CANONICAL[written]
    assert parse_connection(str(spec)) == spec


def test_parts_of_a_spec():
    rskip = parse_connection("2rskip+ln")
    assert (rskip.family, rskip.factor, rskip.norm, rskip.options) == ("rskip", 2, "ln", ())
    assert (rskip.recursion, rskip.scale) == (2, None)
    xskip = parse_connection("0.5xskip:branch_scale=2")
    assert (xskip.scale, xskip.recursion, xskip.norm) == (0.5, None, None)
    assert xskip.settings == {"scale": 0.5, "branch_scale": 2, "norm": None}
    assert parse_connection("sas:gate=single").settings == {
        "norm": "ln", "gate": "single", "gamma": "tied", "norm_term": True, "alpha_bias": 0, "beta_bias": 0,
    }  # fmt: skip
    assert parse_connection("highway").settings == {"gate": "transform", "bias": -3}


@pytest.mark.parametrize(
    ("spec", "closing"),
    [("prenorm+ln", "ln"), ("prenorm+rms", "rms"), ("1xskip+ln", None), ("1xskip", None), ("sas", None)],
)
def test_closing_norm(spec, closing):
    assert parse_connection(spec).closing_norm == closing


def test_a_spec_built_from_parts_is_the_parsed_one():
    assert ConnectionSpec("rskip", 2.0, "ln") == parse_connection("2rskip+ln")
    parts = ConnectionSpec("sas", options=(("norm_term", False), ("beta_bias", -3.0), ("alpha_bias", 0)))
    assert parts == parse_connection("sas:norm_term=false,beta_bias=-3")
    assert hash(parts) == hash(parse_connection("sas+ln:beta_bias=-3,norm_term=false"))
    assert build_connection(ConnectionSpec("rskip", 3, "ln"), 4).recursion == 3


@st.composite
def specs(draw) -> ConnectionSpec:
    family = draw(st.sampled_from([family for family in list_connections() if family.name in BUILT_IN]))
    factor = None
    if family.factor is not None:
        positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
        factor = draw(st.integers(1, 10**6) if family.factor.integer else positive)
    options = {}
    for name, option in family.options.items():
        if draw(st.booleans()):
            if isinstance(option, Flag):
                value = draw(st.booleans())
            elif isinstance(option, Choice):
                value = draw(st.sampled_from(option.words))
            else:
                value = draw(st.floats(allow_nan=False, allow_infinity=False))
                assume(value > 0 or not option.positive)
            options[name] = value
    assume(family.name != "sas" or options.get("norm_term", True))
    norm = draw(st.sampled_from(family.norms))
    return ConnectionSpec(family.name, factor, norm, tuple(options.items()))


@settings(max_examples=300, deadline=None)
@given(specs())
def test_every_spec_is_read_back_from_its_text(spec):
    assert parse_connection(str(spec)) == spec
    assert str(parse_connection(str(spec).upper())) == str(spec)
    assert re.fullmatch(r"[a-z0-9_-]+", spec.slug)


@settings(max_examples=300, deadline=None)
@given(specs(), specs())
def test_different_specs_have_different_slugs(one, other):
    assert (one == other) == (str(one) == str(other)) == (one.slug == other.slug)


def test_slugs_tell_signs_and_exponents_apart():
    written = ["1.5xskip", "15xskip", "1e-05xskip", "1e+25xskip", "1e25xskip:branch_scale=2"]
    assert [parse_connection(text).slug for text in written] == [
        "1p5xskip", "15xskip", "1em05xskip", "1e25xskip", "1e25xskip-branch_scale_2",
    ]  # fmt: skip


ERRORS = {
    "2rskp+ln": [
        "unknown connection '2rskp+ln'",
        "did you mean '2rskip+ln'?",
        "highway, prenorm, rskip, sas",
    ],
    "3xskp+ln:branch_scale=2": ["'3xskp+ln:branch_scale=2'", "did you mean '3xskip+ln:branch_scale=2'?"],
    "hihgway": ["unknown connection 'hihgway'", "did you mean 'highway'?"],
    "qqqq": ["unknown connection 'qqqq'", "known families: highway"],
    "": ["'' is not a connection", "[λ]family[+norm][:option=value,...]"],
    "2 rskip + ln": ["'2 rskip + ln' is not a connection", "for example 2rskip+ln"],
    "2": ["'2' is not a connection"],
    "ln(x+f)": ["is not a connection"],
    "2rskip": ["2rskip without a normalisation equals 2xskip", "write 2rskip+ln"],
    "1rskip": ["1rskip without a normalisation equals 1xskip"],
    "1.5rskip+ln": ["λ of rskip must be an integer of at least 1, not 1.5", "did you mean '2rskip+ln'?"],
    "0.2rskip+ln": ["not 0.2", "did you mean '1rskip+ln'?"],
    "0rskip+ln": ["λ of rskip must be an integer of at least 1, not 0"],
    "-1rskip+ln": ["not -1"],
    "rskip+ln": ["rskip needs its λ", "'1rskip+ln'"],
    "1e999rskip+ln": ["λ of rskip must be an integer of at least 1, not inf"],
    "0xskip": ["λ of xskip must be a finite number above 0, not 0"],
    "-2xskip+ln": ["λ of xskip must be a finite number above 0, not -2"],
    "1e999xskip": ["λ of xskip must be a finite number above 0, not inf"],
    "xskip": ["xskip needs its λ, a finite number above 0", "'1xskip'"],
    "2sas": ["sas takes no λ; write 'sas'"],
    "2prenorm+ln": ["prenorm takes no λ; write 'prenorm+ln'"],
    "wskip": ["wskip needs a normalisation", "wskip+ln"],
    "wskip:init=2": ["wskip+ln:init=2"],
    "prenorm": ["prenorm needs a normalisation", "prenorm+ln or prenorm+rms"],
    "prenorm+bn": ["prenorm does not take normalisation 'bn'", "prenorm takes ln, rms"],
    "highway+ln": ["highway takes no normalisation, not 'ln'; write 'highway'"],
    "2rskip+rsm": ["unknown normalisation 'rsm'", "did you mean '2rskip+rms'?", "rskip takes ln, rms, bn"],
    "2xskip+": ["unknown normalisation ''"],
    "2xskip+ln+ln": ["is not a connection"],
    "sas:gaet=single": ["unknown option 'gaet'", "did you mean 'gate'?", "sas takes alpha_bias, beta_bias"],
    "2rskip+ln:init=1": ["unknown option 'init'", "rskip takes no options"],
    "sas:gate=singel": ["gate of sas must be full or single, not 'singel'", "did you mean 'single'?"],
    "sas:norm_term=no": ["norm_term of sas must be true or false, not 'no'"],
    "sas:alpha_bias=high": ["alpha_bias of sas must be a finite number, not 'high'"],
    "wskip+ln:init=nan": ["init of wskip must be a finite number, not 'nan'"],
    "1xskip:branch_scale=0": ["branch_scale of xskip must be a finite number above 0, not '0'"],
    "sas:": ["'' in 'sas:' is not an option", "option=value"],
    "sas:gate": ["'gate' in 'sas:gate' is not an option"],
    "sas:gate=": ["'gate=' in 'sas:gate=' is not an option"],
    "sas:gate=full,gate=single": ["option 'gate' is given twice"],
    "sas+bn:norm_term=false": ["norm_term=false leaves sas no normalised term", "+bn means nothing"],
    "sas:norm_term=false,gamma=free": ["gamma=free means nothing"],
}


@pytest.mark.parametrize("text", ERRORS)
def test_a_wrong_spec_is_refused_in_one_line(text):
    for read in (parse_connection, lambda text: build_connection(text, 8)):
        with pytest.raises(ValueError) as error:
            read(text)
        message = str(error.value)
        assert "\n" not in message
        for part in ERRORS[text]:
            assert part in message


@pytest.mark.parametrize("factor", [math.nan, math.inf, -math.inf])
def test_a_factor_that_is_not_a_number_is_refused(factor):
    with pytest.raises(ValueError, match="λ of xskip must be a finite number above 0, not"):
        ConnectionSpec("xskip", factor)


@pytest.mark.parametrize("spec", ["2xskip+bn", "2rskip+bn", "wskip+bn", "sas+bn"])
def test_batch_norm_on_text_is_refused(spec):
    with pytest.raises(ValueError, match=r"batch normalisation \(bn\) is for images.*padding; use ln or rms"):
        build_connection(spec, 8)
    build_connection(spec, 8, feature_dim=1)


def test_prenorm_on_images_is_refused():
    with pytest.raises(ValueError, match=r"prenorm\+ln is for text"):
        build_connection("prenorm+ln", 8, feature_dim=1)


@pytest.mark.parametrize("features", [0, -3, 2.5, True, "8", None])
@pytest.mark.parametrize("make", [lambda n: build_connection("1xskip", n), lambda n: build_norm("ln", n)])
def test_features_must_be_a_positive_whole_number(make, features):
    with pytest.raises(ValueError, match=re.escape(f"whole number of at least 1, not {features!r}")):
        make(features)


@pytest.mark.parametrize("feature_dim", [0, 2, -2, None])
def test_features_lie_last_or_second(feature_dim):
    with pytest.raises(ValueError, match=rf"feature_dim must be -1 .* or 1 .*, not {feature_dim!r}"):
        build_connection("1xskip", 8, feature_dim=feature_dim)


def test_an_unknown_norm_is_refused():
    with pytest.raises(
        ValueError, match=r"unknown normalisation 'rmsnorm' \(did you mean 'rms'\?\); known: ln, rms, bn"
    ):
        build_norm("rmsnorm", 8)


def test_list_of_families_names_formula_and_source():
    families = {family.name: family for family in list_connections()}
    assert set(BUILT_IN) <= set(families) and list(families) == sorted(families)
    assert "(1-α)(1-β)" in families["sas"].formula and "Eq. 4" in families["sas"].source
    assert "y_{k-1}" in families["rskip"].formula and "Eq. 4" in families["rskip"].source
    assert "Table 6" in families["highway"].source
