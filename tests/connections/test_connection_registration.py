"""Your own connections."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import (
    Bounds,
    Connection,
    F,
    Factor,
    Fold,
    Formula,
    Learned,
    Norm,
    Option,
    Paper,
    Place,
    TextNorm,
    X,
    build_connection,
    find_family,
    list_connections,
    parse_connection,
    register_connection,
)
from rskip.formulas import registry
from rskip.vision import preact_resnet


@pytest.fixture(autouse=True)
def registry_as_it_was(monkeypatch):
    monkeypatch.setattr(registry, "_families", dict(registry._families))


def register_gskip() -> type[Connection]:
    @register_connection("gskip", source="a test")
    class GlobalSkip(Connection):
        """y = g·x + f, g learned.

        :param init: g
            at first.
        :param features: not an option.
        """

        def __init__(self, features: int, *, init: float = 1, feature_dim: int = -1) -> None:
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
    family = list_connections()[names.index("gskip")]
    assert (family.formula, family.options["init"].meaning) == ("g·x + f, g learned", "g at first")
    assert parse_connection("gskip").paper == Paper("a test", authors=None, url=None)
    with pytest.raises(ValueError, match=r"did you mean 'gskip'\?"):
        parse_connection("gskp")


def test_a_formula_of_ones_own_in_a_few_lines(draw, assert_same):
    """Forward pass, printed formula, fold and the closing of its stack follow from the terms."""
    paper = Paper("T", "A", "https://paper.example", "Eq. 1")

    @register_connection("kskip", source="a test", paper=paper)
    class TimesSkip(Formula):
        closing_norm = True

        def __init__(self, *, times: Annotated[int, Factor()], norm: TextNorm = "rms", init: float = 1) -> None:
            self.reads = Norm("norm", norm, X)
            self.y = X + Learned("gain", times * init, 1, "g") * F

    spec = parse_connection("3kskip+rms")
    assert (spec.paper, spec.fold, find_family("kskip").formula) == (
        paper, Fold("prenorm+rms"), "x + gF(norm(x)), g learned, and one normalisation closes the stack"
    )  # fmt: skip
    assert (str(spec), spec.norm, spec.closing_norm, spec.factor) == ("3kskip", "rms", "rms", 3)
    connection = build_connection("3kskip:init=0.5", 4).double()
    x, f = draw(2, 4)
    assert_same(connection(x, f), x + 1.5 * f, [x, f], [x, f])
    given, _ = connection.before(x)
    torch.testing.assert_close(given, nn.functional.rms_norm(x, (4,), eps=1e-5))
    with torch.no_grad():
        connection.gain.fill_(7.0)
    assert spec.fold.factor_of(connection) == 7
    connection.reset_parameters()
    assert connection.gain.item() == 1.5
    with pytest.raises(ValueError, match="kskip works only on sequences"):
        build_connection(spec, 4, feature_dim=1)
    with pytest.raises(ValueError, match="expected an integer from 1 to 100 as λ"):
        parse_connection("1.5kskip")


def test_registering_the_same_class_again_is_harmless():
    register_gskip()
    again = register_gskip()
    assert type(build_connection("gskip", 4)) is again


def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match=r"connection 'rskip' is taken by rskip\.formulas\.postnorm\.RSkip"):

        @register_connection("rskip", source="")
        class Other(Connection):
            pass

    assert len(build_connection("2rskip+ln", 4).norms) == 2


def test_the_name_of_a_family_without_published_weights_may_be_taken_by_ones_own_class():
    """Your class may be older than the family. A second class of yours is refused."""
    shipped = type(build_connection("rezero", 4))

    def register() -> type[Connection]:
        @register_connection("rezero", source="one's own")
        class Own(Connection):
            pass

        return Own

    own = register()
    assert type(build_connection("rezero", 4)) is own is not shipped
    with pytest.raises(ValueError, match="connection 'rezero' is taken by .*Own"):
        register_connection("rezero", source="")(type("Another", (Connection,), {}))


class Everything(Connection):
    """A class from which everything can be read that a registration may leave out."""

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm,
        scale: Annotated[float, Factor()],
        flag: bool = False,
        word: Literal["one", "two"] = "two",
        number: float = 1,
        share: Annotated[float, Bounds(0, 1)] = 0.5,
        count: Annotated[int, Bounds(1, 9)] = 3,
        place: Place,
        other: object = None,
        K: int = 0,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.given = (scale, flag, word, number, share, count, place, other, K)

    inner_norms = {"hidden": "ln"}

    def branch_input(self, x: Tensor) -> Tensor:
        return x + 1

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return x + f


def test_most_of_a_family_is_read_from_its_class():
    register_connection("all_of_it", source="a test")(type("Closing", (Everything,), {"closing_norm": True}))
    family = find_family("all_of_it")
    assert (family.passes, family.needs, family.works_on) == ("x", ("place", "branch"), ("text",))
    assert family.options == {
        "flag": Option(bool, False),
        "word": Option(str, "two", words=("one", "two")),
        "number": Option(float, 1),
        "share": Option(float, 0.5, Bounds(0, 1)),
        "count": Option(int, 3, Bounds(1, 9)),
    }
    place = Place("encoder", "ffn", 2, 4, 1, 2, 2)
    built = build_connection("2all_of_it+ln:count=4", 4, place=place, host_supplies="inner_norms")
    assert built.given == (2, False, "two", 1, 0.5, 4, place, None, 0)
    for text, expected in (
        ("share=1.5", "share to be a number from 0 to 1"),
        ("count=10", "count to be a whole number from 1 to 9"),
        ("count=1.5", "count to be a whole number from 1 to 9"),
        ("word=tow", r"word to be one or two \(did you mean 'two'\?\)"),
        ("k=1", r"options of all_of_it \(count, flag, number, share, word\), not 'k'"),
    ):
        with pytest.raises(ValueError, match=f"expected {expected}"):
            parse_connection(f"2all_of_it+ln:{text}")
    registry._families.pop("all_of_it")
    register_connection("all_of_it", source="a test")(Everything)
    assert find_family("all_of_it").works_on == ("text", "images"), "nothing closes its stack"
    registry._families.pop("all_of_it")
    register_connection("all_of_it", source="a test")(type("Text", (Everything,), {"text_only": True}))
    assert find_family("all_of_it").works_on == ("text",)


def test_a_class_with_its_own_before_and_after_passes_on_streams_unless_it_says_history():
    members = {"before": lambda self, state: (state[0], state), "after": lambda self, kept, f: (*kept, f)}
    for stated, passes in (({}, "streams"), ({"reads_earlier_layers": True}, "history")):
        registry._families.pop("pairs", None)
        register_connection("pairs", source="a test")(type("Pairs", (Connection,), members | stated))
        family = find_family("pairs")
        assert (family.passes, family.needs, family.works_on) == (passes, (passes,), ("text",))
        assert family.formula == "", "it has neither terms nor a text"
    assert find_family("frac").passes == "x", "what its before keeps stays within the block"


@pytest.mark.parametrize("name", ["2skip", "My-Skip", "my skip", "skip+ln", "_skip"])
def test_a_name_that_no_spec_could_hold_is_refused(name):
    with pytest.raises(ValueError, match="lower-case letters, digits and underscores"):
        register_connection(name, source="")(Connection)


def test_a_name_that_a_factor_would_take_a_part_of_and_a_norm_without_words_are_refused():
    """2e5skip would be 200000 before `skip`."""
    register_connection("e5skip", source="")(Connection)

    class Scaled(Formula):
        def __init__(self, *, scale: Annotated[float, Factor()]) -> None: ...

    class Unnamed(Formula):
        def __init__(self, *, norm: str) -> None: ...

    for cls, message in ((Scaled, "not e and a digit"), (Unnamed, "annotation of norm in Unnamed")):
        with pytest.raises(ValueError, match=message):
            register_connection("e6skip", source="")(cls)


@pytest.mark.parametrize(
    ("name", "asked"), [("inner_norms", {"hidden": "ln"}), ("branch_gain", 0.5), ("scales_heads", True)]
)
def test_what_changes_the_inside_of_a_branch_is_not_for_images(name, asked):
    members = {name: asked, "combine": lambda self, x, f: x + f}
    register_connection("inside", source="a test")(type("Inside", (Connection,), members))
    assert build_connection("inside", 4, feature_dim=1, host_supplies=name).host_needs == (name,)
    with pytest.raises(ValueError, match="'inside': expected a connection that changes neither the input nor"):
        preact_resnet(8, "inside")


def test_a_connection_without_a_formula_says_so():
    with pytest.raises(NotImplementedError):
        Connection(2)(torch.zeros(2), torch.zeros(2))
