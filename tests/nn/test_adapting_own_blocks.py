"""`adapt` with blocks of a person's own: how they may add, and that no addition is missed in silence."""

from __future__ import annotations

import copy
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rskip.nn import Residual, adapt, adaptation
from rskip.settings.errors import SettingError

WIDTH = 8


def branch() -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.other = branch(), branch()


class Plain(Block):
    def forward(self, x):
        return x + self.mlp(x)


class Reversed(Block):
    def forward(self, x):
        x = self.mlp(x) + (  # the skip is second
            x  # with + in a comment
        )
        return self.other(x) + x


class InPlace(Block):
    def forward(self, x):
        shortcut = x.clone()
        shortcut += self.mlp(x)
        h = self.other(shortcut)
        h += shortcut
        return h


class Functions(Block):
    def forward(self, x):
        x = torch.add(x, self.mlp(x))
        return x.add(self.other(x))


class Parallel(Block):
    def forward(self, x):
        return x + self.mlp(x) + self.other(x)


def dropout_add(f, residual, probability, training):
    out = torch.nn.functional.dropout(f, probability, training)
    return residual + out


class Helper(Block):
    def forward(self, x):
        x = dropout_add(self.mlp(x), x, 0.5, self.training)
        return dropout_add(self.other(x), residual=x, probability=0.5, training=self.training)


class Output(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = branch()

    def forward(self, hidden, input_tensor):
        return self.mlp(hidden) + input_tensor


class InParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Output(), Output()

    def chunk(self, x):
        return self.second(x * 1.5, x)

    def forward(self, x, *, flag=True):
        return (self.chunk(self.first(x * 0.5, x)), flag)


def doubled(forward):
    def wrapper(self, x, **settings):
        return forward(self, x, **settings)

    return wrapper


class Decorated(Block):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    @doubled
    def forward(self, x, scale=None):
        x = x + self.mlp(x)
        if scale is not None:
            x = x + self.other(x) * scale
        return x


class Difference(Block):
    """A branch that subtracts its input, as PoolFormer's pooling does."""

    def forward(self, x):
        x = x + (self.mlp[1:](self.mlp[0](x)) - self.mlp[0](x))
        return x + self.other(x)


class Inside(Block):
    """A branch with an addition of its own."""

    def forward(self, x):
        h = self.mlp[0](x)
        return x + self.mlp[1:](h + self.other(h))


class Masked(Block):
    """It draws from NumPy in training, as speech models do for their masks."""

    def forward(self, x):
        return x + self.mlp(x * np.random.rand() if self.training else x)


# Python 3.10 tells only the line of a sum, so lines with several are refused (docs/install.md).
needs_columns = pytest.mark.skipif(sys.version_info < (3, 11), reason="several sums or calls in one line")
GOOD = [Plain, Reversed, InPlace, Functions, Decorated, Difference, Masked]
GOOD += [pytest.param(kind, marks=needs_columns) for kind in (Parallel, Helper, InParts, Inside)]


class Model(nn.Module):
    def __init__(self, kind: Callable[[], nn.Module], layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH)
        self.blocks = nn.ModuleList(kind() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.embed(tokens % 16)
        for block in self.blocks:
            x = block(x)
            x = x[0] if type(x) is tuple else x
        return self.norm(x)


TOKENS = torch.arange(10).view(2, 5)


def built(kind: Callable[[], nn.Module]) -> Model:
    torch.manual_seed(0)
    return Model(kind)


@pytest.mark.parametrize("kind", GOOD)
def test_every_way_to_add_is_replaced(kind):
    model = built(kind)
    expected = model.eval()(TOKENS)
    for spec in ("prenorm+ln", "1xskip", "laurel+ln", "mhc", "attnres", "2rskip+ln"):
        adapted = adapt(copy.deepcopy(model), spec)
        found = adapted(TOKENS)
        if spec == ("1xskip" if kind is InParts else "prenorm+ln"):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
        (adapted.train()(TOKENS) ** 3).sum().backward()
        assert [name for name, each in adapted.named_parameters() if each.grad is None and "other" not in name] == []
        again = pickle.loads(pickle.dumps(adapted)).eval()
        assert torch.equal(again(TOKENS), found) and type(again.blocks[0]).__name__ == kind.__name__


def test_the_branches_of_one_formula_are_those_of_the_block():
    """y = x + f(x) in three blocks, with the connection in place of the sum."""
    model = built(Plain)
    adapted = adapt(copy.deepcopy(model), "3xskip+ln")
    x = model.embed(TOKENS)
    for block, mine in zip(model.blocks, adapted.blocks, strict=True):
        f = block.mlp[1:](x)  # without its norm: post-norm connections read x itself
        x = mine.residuals.ffn.connection(x, f)
    torch.testing.assert_close(adapted(TOKENS), x)


class Twice(Block):
    def forward(self, x):
        y = x + self.mlp(x)
        return y + x


class Conditional(Block):
    def forward(self, x, mode="one"):
        residual = x
        if mode == "one":
            return residual + self.mlp(x)
        return residual + 2 * self.other(x) if mode == "two" else x


class InTraining(Block):
    def forward(self, x):
        return x + self.mlp(x) if not self.training else x + 0.5 * self.mlp(x)


class SecondStream(Block):
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        a = a + self.mlp(x)[..., : WIDTH // 2]
        return torch.cat([a, b + self.other(torch.cat([a, b], -1))[..., : WIDTH // 2]], -1)


@pytest.mark.parametrize("kind", [Twice, Conditional, InTraining, SecondStream])
def test_an_addition_that_is_not_found_is_an_error(kind):
    model = built(kind)
    expected, classes = model(TOKENS), [type(each) for each in model.modules()]
    with pytest.raises(SettingError, match="^model .*addition"):
        adapt(model, "2rskip+ln")
    assert torch.equal(model(TOKENS), expected) and [type(each) for each in model.modules()] == classes


class Scaled(Block):
    def forward(self, x):
        x = 0.5 * x + self.mlp(x)
        return x * 0.9 + self.other(x)


class Turned(Block):
    def forward(self, x):
        x = x.transpose(0, 1)
        x = x + self.mlp(x)
        x = x + self.other(x)
        return x.transpose(0, 1)


class Preceded(Block):
    def forward(self, x):
        x = self.mlp(self.other(x))
        return x + self.other(x)


class Projected(Block):
    def __init__(self) -> None:
        super().__init__()
        self.shortcut = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = self.shortcut(x) + self.mlp(x)
        return x + self.other(x)


class OpenedByNorm(Block):
    """As in Bloom with apply_residual_connection_post_layernorm: the skip is the normalised stream."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = self.first(x)
        x = x + self.mlp[1:](x)
        x = self.second(x)
        return x + self.other[1:](x)


class ClosedByNorm(Block):
    """As in a Conformer: the last sum of a pre-norm block is normalised too."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x + self.mlp(x)
        return self.last(x + self.other(x))


CHANGED = {
    Scaled: "1xskip",
    Turned: "prenorm+ln",
    Preceded: "prenorm+ln",
    Projected: None,
    OpenedByNorm: "1xskip",
    ClosedByNorm: "prenorm+ln",
}


@pytest.mark.parametrize("kind, own", CHANGED.items())
def test_where_the_skip_is_not_the_stream_the_connection_reads_the_operands(kind, own):
    model = built(kind).eval()
    adapted = adapt(copy.deepcopy(model), own or "2rskip+ln")
    assert adaptation(adapted).own == own
    assert [len(each.residuals.connections()) for each in adapted.blocks] == [1 if kind is Preceded else 2] * 3
    if own:
        assert torch.equal(adapted(TOKENS), model(TOKENS))
    adapted = adapt(copy.deepcopy(model), "2rskip+ln")
    assert {each.numel() for each in adapted.blocks[0].residuals.parameters()} == {WIDTH}
    with pytest.raises(SettingError, match="changes the skip|more after its last|transposed form"):
        adapt(model, "mhc")


def test_a_stack_that_cannot_carry_the_state_keeps_its_sums_beside_one_that_can():
    model = nn.Sequential(built(Plain), nn.Sequential(Turned(), Turned()))
    with pytest.warns(UserWarning, match="1.0 .Turned.*1.1 .Turned"):
        adapt(model, "mhc", example=TOKENS)
    assert adaptation(model).blocks["Plain"] == 3 and model(TOKENS).shape == (2, 5, WIDTH)


class Joint(nn.Module):
    """Two streams that attend to both, as image and text do in a diffusion transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp, self.other = branch(), branch()

    def attend(self, image, text):
        both = torch.cat([image, text], dim=1)
        return self.attention(both, both, both, need_weights=False)[0].split([image.shape[1], text.shape[1]], dim=1)

    last = False

    def forward(self, image, text):
        f, g = self.attend(image, text)
        if not self.last:
            image = image + f
            image = image + self.mlp(image)
        text = text + g
        return text + self.other(text), None if self.last else image


class JointModel(Model):
    def forward(self, tokens):
        image = self.embed(tokens % 16)
        text = image[:, :2].cos()
        for block in self.blocks:
            text, image = block(image, text=text)
        return torch.cat([text, image], dim=1)


@pytest.mark.parametrize("spec", ["1xskip", "2rskip+ln", "mhc", "attnres"])
def test_each_of_several_streams_gets_connections_of_its_own(spec):
    torch.manual_seed(0)
    model = JointModel(Joint)
    adapted = adapt(copy.deepcopy(model), spec)
    stacks = [f"blocks, {name}: 3 × Joint (attention, ffn)" for name in ("image", "text")]
    assert [*adaptation(adapted).stacks] == stacks and adaptation(adapted).blocks == {"Joint": 3}
    for parameter in adapted.parameters():
        nn.init.normal_(parameter, std=0.3)
    (adapted(TOKENS) ** 3).sum().backward()
    assert [name for name, each in adapted.named_parameters() if each.grad is None and "norm" not in name] == []
    found, again = adapted.eval()(TOKENS), pickle.loads(pickle.dumps(adapted))
    assert torch.equal(again(TOKENS), found)
    if spec == "attnres":  # mhc takes 40 seconds
        torch.testing.assert_close(torch.compile(again, backend="eager", fullgraph=True)(TOKENS), found)

    x, y = adapted.embed(TOKENS), adapted.embed(TOKENS)[:, :2].cos()
    places = [(block, block.other_streams[0]) for block in adapted.blocks]
    opening = [each.__dict__["rskip_opening"] for each in places[0]]
    x, y = (stack.enter(each) for stack, each in zip(opening, (x, y), strict=True))
    for block, (first, second) in zip(adapted.blocks, places, strict=True):
        (one, three), (two, four) = first.residuals.connections(), second.residuals.connections()
        (a, x), (b, y) = one.before(x), two.before(y)
        f, g = block.attend(a, b)
        a, x = three.before(one.after(x, f))
        b, y = four.before(two.after(y, g))
        x, y = three.after(x, block.mlp(a)), four.after(y, block.other(b))
    x, y = (each.__dict__["rskip_closing"].leave(s) for each, s in zip(places[-1], (x, y), strict=True))
    torch.testing.assert_close(found, torch.cat([y, x], dim=1))


class Finished(Joint):
    """The second stream reads the first one after its last addition."""

    def forward(self, image, text):
        image = image + self.mlp(image)
        return text + self.other[1:](self.other[0](text) + image.mean(1, keepdim=True)), image


class Unpaired(JointModel):
    def __init__(self, kind):
        super().__init__(kind)
        self.blocks[-1].last = True

    def forward(self, tokens):
        image = self.embed(tokens % 16)
        text = image[:, :2].cos()
        for block in self.blocks:
            text, image = block(image, text=text)
        return text


def test_a_stream_that_another_one_reads_at_its_end_passes_on_no_state():
    torch.manual_seed(0)
    model = JointModel(Finished).eval()
    torch.testing.assert_close(adapt(copy.deepcopy(model), "denseformer")(TOKENS), model(TOKENS))
    with pytest.warns(UserWarning, match="blocks.0, image .Finished"):
        adapted = adapt(model, "mhc")
    assert adaptation(adapted).stacks == ("blocks, text: 3 × Finished (ffn)",)


def test_the_last_block_may_return_one_of_two_streams():
    stacks = adaptation(adapt(Unpaired(Joint), "mhc")).stacks
    assert stacks == ("blocks, image: 2 × Joint (attention, ffn)", "blocks, text: 3 × Joint (attention, ffn)")


@pytest.mark.parametrize("spec", ["deepnorm", "askip+ln"])
def test_the_depth_is_that_of_one_stream(spec):
    one = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, batch_first=True, norm_first=True), 3)
    found = []
    for model in (one, JointModel(Joint)):
        adapt(model, spec, host_supplies=["branch_gain"])
        found.append(next(each for each in model.modules() if isinstance(each, Residual)).connection)
    assert repr(found[0]) == repr(found[1])


def test_frac_reads_its_state():
    block = adapt(nn.Sequential(Plain(), Plain()), "frac", example=torch.randn(2, 3, WIDTH))[0]
    connection = block.residuals.ffn.connection
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 3, WIDTH)
    given, kept = connection.before(x)
    torch.testing.assert_close(block(x), connection.after(kept, block.mlp(given)))


class OneLine(Joint):
    def forward(self, image, text):
        both = [image, text]
        for number, f in enumerate(self.attend(image, text)):
            both[number] = both[number] + f
        return both[1], both[0]


def test_a_line_that_adds_to_several_streams_is_an_error():
    with pytest.raises(SettingError, match="adds to several streams"):
        adapt(JointModel(OneLine), "2rskip+ln")


class Snake(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x):
        f = self.first(x + x.sin() ** 2)
        return x + self.second(f)


def test_the_features_of_sound_are_those_that_the_convolution_behind_an_activation_reads():
    torch.manual_seed(0)
    model = adapt(nn.Sequential(Snake(), Snake()), "2rskip+ln", example=torch.randn(2, WIDTH, 5))
    assert [*model[0].residuals.modules()][-1].weight.shape == (WIDTH,)


def test_an_optional_input_that_the_example_lacked_is_an_error_when_it_comes():
    model = adapt(built(Decorated), "2rskip+ln")
    with pytest.raises(RuntimeError, match="pass adapt an example="):
        model.blocks[0](model.embed(TOKENS), scale=2.0)


class Leaves(Block):
    """A block that may end before its last branch, or before the first."""

    branches = 2

    def forward(self, x):
        if self.branches == 0:
            return x
        x = x + self.mlp(x)
        if self.branches == 2:
            x = x + self.other(x)
        return x


@pytest.mark.parametrize("spec", ["prenorm+rms", "layerscale+rms:init=1", "lns", "2rskip+ln"])
@pytest.mark.parametrize("branches", [0, 1])
def test_a_block_that_leaves_out_branches_returns_the_state_and_not_what_the_next_branch_reads(spec, branches):
    block = adapt(nn.Sequential(Leaves(), Leaves()), spec, example=torch.randn(2, 3, WIDTH))[0]
    for parameter in block.mlp.parameters():
        nn.init.zeros_(parameter)
    x = 10 * torch.randn(2, 3, WIDTH)
    expected = x if branches == 0 or spec != "2rskip+ln" else block.residuals.connections()[0](x, torch.zeros_like(x))
    block.branches = branches
    torch.testing.assert_close(block(x), expected)


def test_blocks_beside_adapted_ones_that_stay_are_told():
    model = nn.Sequential(Leaves(), Leaves(), Leaves())
    model[2].branches = 0
    for blocks, told in ((None, "1 × Leaves"), (Leaves, "2 .Leaves")):
        with pytest.warns(UserWarning, match=told):
            adapt(copy.deepcopy(model), "2rskip+ln", blocks=blocks, example=torch.randn(2, 3, WIDTH))


def test_globals_that_are_patched_later_are_seen(monkeypatch):
    model = built(Functions)
    adapted = adapt(copy.deepcopy(model), "1xskip")
    seen = []
    gelu = torch.nn.functional.gelu
    monkeypatch.setattr(torch.nn.functional, "gelu", lambda *args, **kwargs: seen.append(1) or gelu(*args, **kwargs))
    adapted(TOKENS)
    assert len(seen) == 6


class Coded(Block):
    def forward(self, x):
        return x + self.mlp[1:](nn.functional.layer_norm(x, (WIDTH,)))


def test_a_norm_in_the_code_of_a_block_stays_and_is_told():
    model = built(Coded)
    expected = model.eval()(TOKENS)
    assert torch.equal(adapt(copy.deepcopy(model), "prenorm+ln")(TOKENS), expected)
    with pytest.warns(UserWarning, match="ln in the code of Coded"):
        adapt(model, "2rskip+ln")
    assert adaptation(model).unchanged == ("ln in the code of Coded",)


def test_the_blocks_may_be_named():
    for blocks in ("blocks", Plain, [Plain, Reversed]):
        assert adaptation(adapt(built(Plain), "mhc", blocks=blocks)).blocks == {"Plain": 3}
    with pytest.raises(SettingError, match="blocks is 'h': expected a module of the model, such as blocks"):
        adapt(built(Plain), "mhc", blocks="h")
    with pytest.raises(SettingError, match="has no block whose"):
        adapt(built(Plain), "mhc", blocks=nn.Embedding)


class LongSkip(Model):
    def forward(self, tokens):
        x = first = self.blocks[0](self.embed(tokens % 16))
        for block in self.blocks[1:]:
            x = block(x)
        return self.norm(x + first)


def test_a_probe_that_adds_up_gradients_in_another_order_proves_nothing_wrong():
    torch.manual_seed(0)
    assert adaptation(adapt(LongSkip(Plain), "2rskip+ln")).blocks == {"Plain": 3}


class Needy(Model):
    def forward(self, tokens, extra):
        return super().forward(tokens) + extra["a"]


def test_an_example_may_be_given():
    torch.manual_seed(0)
    with pytest.raises(SettingError, match="does not run on tokens, images or features .*; pass example="):
        adapt(Needy(Plain), "mhc")
    for example in ((TOKENS, {"a": 1}), {"tokens": TOKENS, "extra": {"a": 1}}):
        assert adaptation(adapt(Needy(Plain), "mhc", example=example)).blocks == {"Plain": 3}
    with pytest.raises(SettingError, match="does not run on example"):
        adapt(Needy(Plain), "mhc", example=TOKENS)


def test_a_dry_run_prints_the_lines_and_changes_nothing(capsys):
    model = built(Plain)
    adapt(model, "mhc", dry_run=True)
    printed = capsys.readouterr().out
    assert "- " in printed and "return x + self.mlp(x)" in printed
    assert "return _rskip_.at(0).join(x, self.mlp(x), 0)" in printed
    assert adaptation(model) is None and type(model.blocks[0]) is Plain


def without_source() -> nn.Module:
    names: dict[str, Any] = {"Block": Block}
    exec("class Made(Block):\n    def forward(self, x):\n        return x + self.mlp(x)\n", names)
    return names["Made"]()


def with_lambda() -> nn.Module:
    block = Plain()
    block.forward = types.MethodType(lambda self, x: x + self.mlp(x), block)
    return block


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (without_source, "the source of"),
        (with_lambda, "adds in <lambda>"),
        (lambda: torch.compile(Plain(), backend="eager"), "is compiled"),
        (lambda: torch.jit.script(nn.Linear(WIDTH, WIDTH)), "is scripted"),
        (lambda: nn.Linear(WIDTH, WIDTH), "has no block whose"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_rewritten_is_told(kind, problem):
    with pytest.raises(SettingError, match=problem):
        adapt(built(kind), "2rskip+ln")


def test_a_block_that_is_used_twice_is_told():
    model = built(Plain)
    model.blocks[2] = model.blocks[0]
    with pytest.raises(SettingError, match="runs one block several times, blocks.0"):
        adapt(model, "2rskip+ln")


def test_new_modules_have_the_mode_of_their_block():
    model = built(Plain)
    model.blocks[1].eval()
    adapt(model, "2rskip+ln")
    assert [each.training for each in model.blocks[0].residuals.modules()] == [True] * 6
    assert not any(each.training for each in model.blocks[1].modules()) and model.training


class Parent(Block):
    def forward(self, x, factor=1.0):
        return x + factor * self.mlp(x), None


class Child(Parent):
    def forward(self, x):
        return super().forward(x, factor=2.0)[0]


def added_to(block, x):
    return x + block.mlp(x)


class ByFunction(Block):
    def forward(self, x):
        return added_to(self, x)


@pytest.mark.parametrize("kind", [pytest.param(Child, marks=needs_columns), ByFunction])
def test_additions_of_parents_and_functions_are_replaced(kind):
    model = built(kind)
    expected = model.eval()(TOKENS)
    assert torch.equal(adapt(copy.deepcopy(model), "prenorm+ln")(TOKENS), expected)
    adapted = adapt(model, "3xskip+ln")
    again = pickle.loads(pickle.dumps(adapted))
    assert torch.equal(again(TOKENS), adapted(TOKENS)) and not torch.equal(adapted(TOKENS), expected)


class Halves(Block):
    """One sum, and something else that carries the stream on."""

    how: Callable[[Tensor, Tensor], Tensor]

    def forward(self, x):
        x = x + self.mlp(x)
        return type(self).how(x, self.other(x))


class OtherHalves(Block):
    how: Any

    def forward(self, x):
        x = type(self).how(x, self.other(x))
        return x + self.mlp(x)


OTHER_WAYS = {
    "lerp": lambda x, f: torch.lerp(x, f, 0.5),
    "addcmul": lambda x, f: torch.addcmul(x, f, f.sigmoid()),
    "stack": lambda x, f: torch.stack([x, f]).sum(0),
    "gated": lambda x, f: x * f.sigmoid() + f * (1 - f.sigmoid()),
    "scaled": lambda x, f: 0.5 * x + f,
    "in a lambda": lambda x, f: x + f,
}


@pytest.mark.parametrize("half", [Halves, OtherHalves])
@pytest.mark.parametrize("way", OTHER_WAYS)
def test_a_block_of_which_only_half_is_found_is_refused(way, half):
    kind = type("Halves", (half,), {"how": staticmethod(OTHER_WAYS[way]), "__module__": __name__})
    with pytest.raises(SettingError, match=r"^model .*(addition|adds in <lambda>)"):
        adapt(built(kind), "3xskip")


class TwoStreams(Block):
    def forward(self, x, y):
        x = x + self.mlp(y)
        return x, y + self.other(x)


class TwoStreamed(Model):
    def forward(self, tokens):
        x = y = self.embed(tokens % 16)
        for block in self.blocks:
            x, y = block(x, y * 1.5)
        return x + y


def test_two_streams_are_refused():
    for spec in ("3xskip", "mhc"):
        with pytest.raises(SettingError, match="has no block whose"):
            adapt(TwoStreamed(TwoStreams), spec)


def test_a_norm_of_another_block_is_not_the_final_one():
    torch.manual_seed(0)
    model = built(Plain)
    model.norm = nn.Sequential(OpenedByNorm(), nn.LayerNorm(WIDTH))
    adapt(model, "3xskip", blocks="blocks")
    assert type(model.norm[0].first) is nn.LayerNorm


def test_initial_values_are_drawn_from_the_callers_seed():
    def gates(seed: int) -> tuple[Tensor, Tensor]:
        model = built(Plain)
        torch.manual_seed(seed)
        adapt(model, "sas")
        return torch.cat([each.flatten() for each in model.blocks[0].residuals.parameters()]), torch.rand(3)

    one, again, other = gates(1), gates(1), gates(2)
    assert torch.equal(one[0], again[0]) and torch.equal(one[1], again[1])
    assert not torch.equal(one[0], other[0]) and not torch.equal(one[1], other[1])
