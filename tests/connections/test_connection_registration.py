"""A connection of one's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import (
    Connection,
    Factor,
    Fold,
    Number,
    Paper,
    build_connection,
    build_norm,
    list_connections,
    parse_connection,
    register_connection,
    registry,
)
from rskip.vision import preact_resnet


@pytest.fixture(autouse=True)
def registry_as_it_was(monkeypatch):
    monkeypatch.setattr(registry, "_families", dict(registry._families))


def register_gskip() -> type[Connection]:
    @register_connection("gskip", formula="g·x + f, g learned", source="a test", options={"init": Number(1)})
    class GlobalSkip(Connection):
        def __init__(self, features: int, *, init: float, feature_dim: int = -1) -> None:
            super().__init__(features, feature_dim=feature_dim)
            self.gain = nn.Parameter(torch.tensor(float(init)))

        def combine(self, x: Tensor, f: Tensor) -> Tensor:
            return self.gain * x + f

    return GlobalSkip


def test_a_connection_of_ones_own_in_a_few_lines(draw, assert_same):
    cls = register_gskip()
    connection = build_connection("gskip:init=0.5", 4).double()
    assert type(connection) is cls
    x, f = draw(3, 4)
    assert_same(connection(x, f), 0.5 * x + f, [x, f], [x, f])
    assert str(parse_connection("gskip:init=1.0")) == "gskip"
    names = [family.name for family in list_connections()]
    assert names == sorted(names)
    assert list_connections()[names.index("gskip")].formula == "g·x + f, g learned"
    assert parse_connection("gskip").paper == Paper("a test", authors=None, url=None)
    with pytest.raises(ValueError, match=r"did you mean 'gskip'\?"):
        parse_connection("gskp")


def test_one_with_factor_norm_closing_norm_paper_and_fold(draw):
    paper = Paper("T", "A", "https://paper.example", "Eq. 1")

    @register_connection(
        "kskip",
        formula="norm(x)·k + f",
        source="a test",
        factor=Factor("times", integer=True),
        norms=("ln", "rms"),
        default_norm="rms",
        closing_norm=True,
        text_only=True,
        paper=paper,
        fold=lambda spec: Fold(f"1xskip+{spec.norm}", 0.5),
    )
    class TimesSkip(Connection):
        def __init__(self, features: int, *, times: int, norm: str, feature_dim: int = -1) -> None:
            super().__init__(features, feature_dim=feature_dim)
            self.times = times
            self.norm = build_norm(norm, features, feature_dim)

        def combine(self, x: Tensor, f: Tensor) -> Tensor:
            return self.norm(x) * self.times + f

    spec = parse_connection("3kskip+rms")
    assert (spec.paper, spec.fold) == (paper, Fold("1xskip+rms", 0.5))
    assert (str(spec), spec.norm, spec.closing_norm, spec.factor) == ("3kskip", "rms", "rms", 3)
    x, f = draw(2, 4)
    expected = 3 * nn.functional.rms_norm(x, (4,), eps=1e-5) + f
    torch.testing.assert_close(build_connection(spec, 4).double()(x, f), expected)
    with pytest.raises(ValueError, match="kskip is for text"):
        build_connection(spec, 4, feature_dim=1)
    with pytest.raises(ValueError, match="expected an integer of at least 1 as λ"):
        parse_connection("1.5kskip")


def test_registering_the_same_class_again_is_harmless():
    register_gskip()
    again = register_gskip()
    assert type(build_connection("gskip", 4)) is again


def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match=r"connection 'rskip' is taken by rskip\.connections\.rskip\.RSkip"):

        @register_connection("rskip", formula="", source="")
        class Other(Connection):
            pass

    assert build_connection("2rskip+ln", 4).recursion == 2


def test_the_name_of_a_family_without_published_weights_may_be_taken_by_ones_own_class():
    """Which may be the older one. Another class of one's own is refused."""
    shipped = type(build_connection("rezero", 4))

    def register() -> type[Connection]:
        @register_connection("rezero", formula="x + αf", source="one's own")
        class Own(Connection):
            pass

        return Own

    own = register()
    assert type(build_connection("rezero", 4)) is own is not shipped
    with pytest.raises(ValueError, match="connection 'rezero' is taken by .*Own"):
        register_connection("rezero", formula="", source="")(type("Another", (Connection,), {}))


@pytest.mark.parametrize("name", ["", "2skip", "My-Skip", "my skip", "skip+ln", "_skip"])
def test_a_name_that_no_spec_could_hold_is_refused(name):
    with pytest.raises(ValueError, match="lower-case letters, digits and underscores"):
        register_connection(name, formula="", source="")


def test_a_family_that_contradicts_itself_is_refused_when_it_is_registered():
    class Plain(Connection):
        def combine(self, x: Tensor, f: Tensor) -> Tensor:
            return x + f

    class Streams(Plain):
        def after(self, kept, f):
            return kept

    for cls, fields, message in (
        (Plain, {"norms": "ln"}, "norms: expected a tuple of None and ln, rms, gn1, bn, not 'ln'"),
        (Plain, {"default_norm": "ln"}, "default_norm: expected one of its norms, not 'ln'"),
        (Plain, {"factor": "scale"}, "factor: expected a Factor, not 'scale'"),
        (Plain, {"options": {"init": 1}}, "option init: expected a Number, Whole, Flag or Choice, not 1"),
        (Plain, {"passes": "historic"}, "passes: expected x, streams, history, not 'historic'"),
        (Streams, {}, "passes: expected streams or history, since its class has its own before or after"),
        (Plain, {"source": None}, "formula and source: expected texts"),
        (Plain, {"needs_place": True}, r"expected one that is built with \(features, feature_dim, place\)"),
        (nn.Linear, {}, "its class: expected one derived from Connection"),
    ):
        with pytest.raises(ValueError, match=f"^connection own: .*{message}"):
            register_connection("own", **{"formula": "x + f", "source": "a test", **fields})(cls)
    assert "own" not in {family.name for family in list_connections()}


@pytest.mark.parametrize(
    ("name", "asked"), [("inner_norms", {"hidden": "ln"}), ("branch_gain", 0.5), ("scales_heads", True)]
)
def test_what_changes_the_inside_of_a_branch_is_not_for_images(name, asked):
    members = {name: asked, "combine": lambda self, x, f: x + f}
    register_connection("inside", formula="x + f", source="a test")(type("Inside", (Connection,), members))
    assert build_connection("inside", 4, feature_dim=1, host_supplies=name).host_needs == (name,)
    with pytest.raises(ValueError, match="inside changes what is inside the branch, and blocks of images don't"):
        preact_resnet(8, "inside")


def test_a_place_in_a_branch_that_is_not_there_is_refused():
    members = {"inner_norms": {"head": "ln"}}
    register_connection("inside", formula="x + f", source="a test")(type("Inside", (Connection,), members))
    with pytest.raises(ValueError, match=r"inner_norms of query, .*, not 'head' \(did you mean 'heads'\?\)"):
        build_connection("inside", 4)


def test_a_connection_without_a_formula_says_so():
    with pytest.raises(NotImplementedError):
        Connection(2)(torch.zeros(2), torch.zeros(2))
