"""`adapt` over models of five libraries: stock connections change nothing, others train, states go round."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import DeepNorm, list_connections
from rskip.nn import adapt, adaptation
from rskip.settings.errors import SettingError

# PyTorch's, on encoders that its fused kernel doesn't compute, and on what those do that it computes
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")


@dataclass
class Case:
    """A small model.

    :param blocks: the classes of its blocks.
    :param build: makes the model.
    :param call: its output, a tensor, for inputs that are drawn from seed 0.
    :param stock: the connection that the library computes itself.
    :param same: other connections that start as this one, or differ from it by rounding only.
    :param refused: families that can't live there.
    """

    library: str
    blocks: tuple[str, ...]
    build: Callable[[], nn.Module]
    call: Callable[[Any], Tensor]
    stock: str
    same: tuple[str, ...]
    refused: frozenset[str]


WIDTH = 16
# these need norms inside the branch, gains of initial weights, or a pass over data
NEEDY = frozenset({"subln", "normformer", "hybridnorm", "deepnorm", "admin"})
PRE_NORM = ("laurel+ln", "layerscale+ln:init=1", "denseformer", "gpas", "mudd", "frac", "hyper")
POST_NORM = ("1rskip+ln", "wskip+ln")
ENCODER, DECODER = "TransformerEncoderLayer", "TransformerDecoderLayer"


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def padding(length: int) -> Tensor:
    """The second of two sentences is shorter by one position."""
    return torch.arange(length).expand(2, -1) >= torch.tensor([[length], [length - 1]])


def timm_vit() -> nn.Module:
    import timm

    size = dict(img_size=16, patch_size=8, depth=2, embed_dim=WIDTH, num_heads=2, num_classes=5)
    return timm.create_model("vit_tiny_patch16_224", **size)


def torch_layer(kind: Callable[..., nn.Module] = nn.TransformerEncoderLayer, **settings: Any) -> Any:
    return kind(WIDTH, nhead=2, dim_feedforward=32, **{"batch_first": True, **settings})


def torch_encoder(layers: int = 2, **settings: Any) -> nn.Module:
    norm = nn.LayerNorm(WIDTH) if settings.get("norm_first") else None
    return nn.TransformerEncoder(torch_layer(**settings), layers, norm)


def torch_decoder(**settings: Any) -> nn.Module:
    return nn.TransformerDecoder(torch_layer(nn.TransformerDecoderLayer, **settings), 2)


def torch_transformer(**settings: Any) -> nn.Module:
    return torch_layer(nn.Transformer, num_encoder_layers=1, num_decoder_layers=2, **settings)


def call_encoder(model: Any) -> Tensor:
    return model(draw(2, 5, WIDTH), src_key_padding_mask=padding(5))


def call_decoder(model: Any) -> Tensor:
    masks = dict(tgt_mask=causal(3), memory_key_padding_mask=padding(5))
    return model(draw(3, 2, WIDTH), draw(5, 2, WIDTH), **masks, tgt_is_causal=True)


def call_transformer(model: Any) -> Tensor:
    masks = dict(src_key_padding_mask=padding(5), memory_key_padding_mask=padding(5), tgt_mask=causal(4))
    return model(draw(2, 5, WIDTH), draw(2, 4, WIDTH), **masks, tgt_is_causal=True)


def causal(length: int) -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(length) != 0


def of_torch(
    build: Callable[..., nn.Module], call: Callable[[Any], Tensor], blocks: tuple[str, ...], **settings: Any
) -> Case:
    stock, same = ("prenorm+ln", PRE_NORM) if settings.get("norm_first") else ("1xskip+ln", POST_NORM)
    if build is torch_layer:
        same = same[:-1]  # the sum of hyper's streams needs a normalisation after it
    return Case("torch", blocks, lambda: build(**settings), call, stock, same, NEEDY)


def torchvision_blocks(kind: str) -> nn.Module:
    from torchvision.models import resnet

    block: Any = getattr(resnet, kind)
    down = nn.Sequential(resnet.conv1x1(8, 16, 2), nn.BatchNorm2d(16))
    blocks = block(8, 8 // block.expansion), block(8, 16 // block.expansion, stride=2, downsample=down)
    return nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def timm_resnet(kind: str, **settings: Any) -> nn.Module:
    from timm.models import resnet

    size = dict(channels=(8, 8, 12, 16), stem_width=4, stem_type="deep", num_classes=5)
    return resnet.ResNet(getattr(resnet, kind), (1, 1, 1, 2), **size, **settings)


def timm_resnet_with_options(kind: str) -> nn.Module:
    from timm.layers import BlurPool2d

    options = dict(aa_layer=BlurPool2d, block_args={"attn_layer": "se"}, act_layer="silu", zero_init_last=False)
    return timm_resnet(kind, **options, avg_down=True, drop_path_rate=0.1)


def of_images(library: str, kind: str, build: Callable[[str], nn.Module]) -> Case:
    same = ("laurel", "rezero:init=1", "layerscale:init=1")
    text = frozenset(family.name for family in list_connections() if "images" not in family.works_on)
    return Case(
        library,
        (kind,),
        lambda: build(kind),
        lambda model: model(draw(2, 3, 48, 48)),
        "1xskip",
        same,
        text,
    )


SIZES = {
    "vocab_size": 61, "hidden_size": WIDTH, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": WIDTH // 2, "pad_token_id": 0,
}  # fmt: skip


def transformers_model(module: str, **settings: Any) -> nn.Module:
    """A small model of Hugging Face's transformers, without head."""
    import transformers

    return transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(module, **{**SIZES, **settings}),
        **{"add_pooling_layer": False} if module == "bert" else {},
    )


def read(model: Any, **settings: Any) -> Tensor:
    """The last hidden states for a sentence of 7 tokens, drawn from seed 0."""
    tokens = torch.randint(3, 61, (2, 7), generator=torch.Generator().manual_seed(0))
    return model(tokens, **settings).last_hidden_state


def read_across(model: Any) -> Tensor:
    return read(model, encoder_hidden_states=draw(2, 5, WIDTH))


def of_transformers(module: str, block: str, stock: str, same: tuple[str, ...], **settings: Any) -> Case:
    call = read_across if settings.get("add_cross_attention") else read
    return Case("transformers", (block,), lambda: transformers_model(module, **settings), call, stock, same, NEEDY)


CASES = {
    "torchvision BasicBlock": of_images("torchvision", "BasicBlock", torchvision_blocks),
    "torchvision Bottleneck": of_images("torchvision", "Bottleneck", torchvision_blocks),
    "timm BasicBlock": of_images("timm", "BasicBlock", timm_resnet),
    "timm Bottleneck": of_images("timm", "Bottleneck", timm_resnet_with_options),
    "timm ViT": Case(
        "timm", ("Block",), timm_vit, lambda model: model(draw(2, 3, 16, 16)), "prenorm+ln", PRE_NORM, NEEDY
    ),
    "pre-norm encoder": of_torch(torch_encoder, call_encoder, (ENCODER,), norm_first=True),
    "post-norm encoder": of_torch(torch_encoder, call_encoder, (ENCODER,), activation="gelu", layer_norm_eps=1e-3),
    "pre-norm encoder layer": of_torch(torch_layer, call_encoder, (ENCODER,), norm_first=True),
    "post-norm decoder": of_torch(torch_decoder, call_decoder, (DECODER,), batch_first=False, bias=False),
    "pre-norm transformer": of_torch(torch_transformer, call_transformer, (ENCODER, DECODER), norm_first=True),
    "post-norm transformer": of_torch(torch_transformer, call_transformer, (ENCODER, DECODER)),
    "GPT-2": of_transformers("gpt2", "GPT2Block", "prenorm+ln", PRE_NORM[:3]),
    "GPT-2 across": of_transformers("gpt2", "GPT2Block", "prenorm+ln", PRE_NORM[:3], add_cross_attention=True),
    "Llama": of_transformers("llama", "LlamaDecoderLayer", "prenorm+rms", ("laurel+rms", "denseformer+rms")),
    "BERT": of_transformers("bert", "BertLayer", "1xskip+ln", POST_NORM),
    "BERT across": of_transformers(
        "bert", "BertLayer", "1xskip+ln", POST_NORM, is_decoder=True, add_cross_attention=True
    ),
}

def specs(case: Case) -> Iterator[tuple[str, str]]:
    """Each family and its default spec, on images without a normalisation where it takes none."""
    for family in list_connections():
        without = family.default_norm or "ln" not in family.norms or (case.stock == "1xskip" and None in family.norms)
        norm = "" if without else "+ln"
        yield family.name, ("2" if family.factor else "") + family.name + norm


def built(case: Case) -> nn.Module:
    """The case's model; its normalisations have gains, biases and statistics that show where they end up."""
    torch.manual_seed(0)
    model = case.build().eval()
    for module in model.modules():
        if "Norm" in type(module).__name__:
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if tensor.is_floating_point():
                    nn.init.uniform_(tensor, *((-0.5, 0.5) if name.endswith(("bias", "mean")) else (0.5, 1.5)))
    return model


def parts(model: nn.Module) -> list[Any]:
    """What must not change if `adapt` raises."""
    modules = [(name, id(module), type(module), {*vars(module)}) for name, module in model.named_modules()]
    tensors = [(name, id(tensor)) for name, tensor in (*model.named_parameters(), *model.named_buffers())]
    return [*modules, *tensors, *model.state_dict()]


@pytest.fixture(params=CASES)
def case(request) -> Case:
    case = CASES[request.param]
    pytest.importorskip(case.library, reason=f"{case.library} is an optional library")
    return case


def test_the_stock_connection_gives_equal_bits_and_keeps_every_weight(case):
    model = built(case)
    expected = case.call(model)
    before = {id(parameter): name for name, parameter in model.named_parameters()}
    assert adapt(model, case.stock) is model
    assert torch.equal(case.call(model), expected)
    found = adaptation(model)
    assert found is not None and found.spec == case.stock and not found.new and not found.dropped
    assert not found.unchanged
    assert {*found.blocks} == {*case.blocks} and all(name in str(found) for name in case.blocks)
    assert found.own == case.stock
    kinds = [type(each).__name__ for each in model.modules()]
    assert found.blocks == {name: kinds.count(name) for name in case.blocks}
    assert {id(parameter) for parameter in model.parameters()} == before.keys()
    names = {name: id(parameter) for name, parameter in model.named_parameters()}
    assert all(before[names[new]] == old for new, old in found.kept.items())


def test_no_parameter_is_both_kept_and_dropped():
    """A new parameter may get the memory of a dropped one, and with it the id of its object."""
    pytest.importorskip("transformers", reason="transformers is an optional library")
    for _ in range(5):
        found = adaptation(adapt(built(CASES["GPT-2"]), "prenorm+rms"))
        assert found.dropped and found.new and not found.kept


def test_in_training_the_stock_connection_gives_equal_bits_and_the_same_gradients(case):
    model = built(case)
    adapted = adapt(copy.deepcopy(model), case.stock)
    outputs = []
    for each in (model, adapted):
        torch.manual_seed(1)
        outputs.append(case.call(each.train()))
        outputs[-1].square().mean().backward()
    assert torch.equal(*outputs)
    before, kept = dict(model.named_parameters()), adaptation(adapted).kept
    for name, parameter in adapted.named_parameters():
        torch.testing.assert_close(parameter.grad, before[kept.get(name, name)].grad, rtol=1e-4, atol=1e-7)


def test_connections_that_start_as_the_stock_one_keep_the_output(case):
    model = built(case)
    expected = case.call(model)
    for spec in case.same:
        torch.testing.assert_close(case.call(adapt(copy.deepcopy(model), spec)), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "case",
    ["torchvision BasicBlock", "timm Bottleneck", "timm ViT", "pre-norm transformer", "post-norm encoder",
     "GPT-2 across", "Llama", "BERT"],
    indirect=True,
)  # fmt: skip
def test_every_family_trains_or_is_refused(case):
    model = built(case)
    refused = set()
    for family, spec in specs(case):
        try:
            adapted = adapt(copy.deepcopy(model), spec).train()
        except SettingError:
            refused.add(family)
            continue
        new = adaptation(adapted).new
        assert {*new} <= dict(adapted.named_parameters()).keys()
        losses = []
        for _ in range(2):
            torch.manual_seed(1)  # for dropout
            losses.append((case.call(adapted) - 1).square().mean())  # the mean square of ngpt's output is always 1
            if len(losses) == 1:
                losses[0].backward()
                assert [name for name, parameter in adapted.named_parameters() if parameter.grad is None] == [], spec
                nn.utils.clip_grad_norm_(adapted.parameters(), 1e-3)
                with torch.no_grad():
                    for parameter in adapted.parameters():
                        parameter -= parameter.grad
        assert losses[1] < losses[0], spec
    assert refused == case.refused


@pytest.mark.parametrize("spec", ["2rskip+ln", "sas", "wskip+ln"])
def test_states_copies_and_pickles_go_round(case, spec):
    model = adapt(built(case), spec)
    expected = case.call(model)
    torch.manual_seed(1)
    other = adapt(case.build().eval(), spec)
    other.load_state_dict(model.state_dict())
    for each in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(case.call(each), expected)
        assert adaptation(each).spec == spec


COMPILED = [  # every host, with its norm before and after the branch where it has both
    "torchvision BasicBlock", "torchvision Bottleneck", "timm BasicBlock", "timm Bottleneck", "timm ViT",
    "pre-norm transformer", "post-norm transformer", "GPT-2 across", "Llama", "BERT across",
]  # fmt: skip


@pytest.mark.slow  # the import of torch._dynamo takes longer than the other tests
@pytest.mark.parametrize("case", COMPILED, indirect=True)
def test_torch_compile_takes_an_adapted_model_whole(case):
    model = adapt(built(case), "2rskip+ln")
    expected = case.call(model)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(case.call(compiled), expected)


def test_device_type_mode_and_frozen_parameters_stay(case):
    model = built(case).double()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for adapted in (adapt(copy.deepcopy(model), "2rskip+ln"), adapt(copy.deepcopy(model).to("meta"), "2rskip+ln")):
        new = adaptation(adapted).new
        assert not any(module.training for module in adapted.modules())
        for name, parameter in adapted.named_parameters():
            assert (parameter.dtype, parameter.requires_grad) == (torch.float64, name in new), name
        assert len({parameter.device for parameter in adapted.parameters()}) == 1


def test_a_state_of_another_connection_is_refused(case):
    state = adapt(built(case), "2rskip+ln").state_dict()
    with pytest.raises(SettingError, match=r"expected 2rskip\+ln, as in the state"):
        adapt(built(case), case.stock).load_state_dict(state)


@pytest.mark.parametrize("case", ["torchvision BasicBlock", "timm ViT", "pre-norm encoder", "GPT-2"], indirect=True)
def test_what_is_refused_changes_nothing(case):
    model = built(case)
    expected, before = case.call(model), parts(model)
    for spec in case.refused:
        with pytest.raises(SettingError):
            adapt(model, spec)
    assert parts(model) == before and torch.equal(case.call(model), expected)
    with pytest.raises(SettingError, match="already adapted"):
        adapt(adapt(model, case.stock), "2rskip+ln")
    before = parts(model)
    with pytest.raises(SettingError, match="has blocks that are already adapted"):
        adapt(nn.ModuleList([model]), "2rskip+ln")
    assert parts(model) == before


@pytest.mark.parametrize("settings", [{"norm_first": True}, {}, {"activation": "gelu"}])
def test_no_fast_path_of_pytorch_goes_around_the_connections(settings):
    """In evaluation without gradients PyTorch computes an encoder layer in one kernel, without padding if it can."""
    stock = "prenorm+ln" if "norm_first" in settings else "1xskip+ln"
    model = built(of_torch(torch_encoder, call_encoder, (ENCODER,), **settings))
    adapted = {spec: adapt(copy.deepcopy(model), spec) for spec in (stock, "3xskip+ln")}
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        slow = call_encoder(model)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    kept = ~padding(5)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not torch.equal(call_encoder(model), slow) or "norm_first" in settings
            assert torch.equal(call_encoder(adapted[stock]), slow)
            torch.testing.assert_close(call_encoder(adapted[stock])[kept], call_encoder(model)[kept])
            other = call_encoder(adapted["3xskip+ln"])
        assert torch.equal(other, call_encoder(adapted["3xskip+ln"])) and not torch.allclose(other, slow, atol=0.1)


@pytest.mark.parametrize("spec", ["denseformer", "attnres"])
def test_a_layer_that_is_skipped_is_an_error_where_later_ones_count_on_it(spec):
    model = nn.Sequential(*(torch_layer(norm_first=True) for _ in range(3)))
    first, second, third = adapt(model, spec)
    state = second(first(draw(2, 5, WIDTH)))
    assert third(state).shape == (2, 5, WIDTH)
    with pytest.raises(AssertionError, match="run every block"):
        third(first(draw(2, 5, WIDTH)))


@pytest.mark.parametrize("spec, change", [("hyper", 0.005), ("attnres", 0.25), ("laurel+ln:form=rw", 0.0)])
def test_the_change_of_outputs_is_what_docs_adapt_says(spec, change):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = dict(n_layer=4, n_head=4, n_embd=64, vocab_size=100, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    tokens = torch.arange(64).view(2, 32)
    before = model(tokens).logits
    adapt(model, spec)
    moved = (model.eval()(tokens).logits - before).abs().max() / before.abs().max()
    assert moved.item() == pytest.approx(change, rel=0.3)


def test_an_unknown_model_is_refused_with_advice():
    with pytest.raises(SettingError, match=r"^model \(Linear\) has no block whose residual additions"):
        adapt(nn.Linear(2, 2), "2rskip+ln")


def test_what_is_not_a_model_is_told():
    for given in ("vit", nn.Transformer):
        with pytest.raises(SettingError, match="expected a PyTorch model"):
            adapt(given, "2rskip+ln")
    with pytest.raises(SettingError, match="wrapped in DataParallel"):
        adapt(nn.DataParallel(torch_encoder()), "2rskip+ln")
    for blocks in (3, torch_encoder().layers[0]):
        with pytest.raises(SettingError, match="blocks is"):
            adapt(torch_encoder(), "2rskip+ln", blocks=blocks)


def test_a_buffer_that_is_expanded_is_no_obstacle():
    model = torch_encoder()
    model.register_buffer("mask", torch.ones(5).expand(3, 5))
    adapt(model, "2rskip+ln")


def test_branches_that_share_a_normalisation_still_share_it():
    layer = built(CASES["pre-norm encoder layer"])
    layer.norm2 = layer.norm1
    expected = call_encoder(layer)
    adapt(layer, "prenorm+ln")
    assert torch.equal(call_encoder(layer), expected)
    assert layer.norm2 is layer.norm1


def test_the_librarys_state_is_loaded_where_norms_stay_and_refused_where_they_went():
    state = torch_encoder().state_dict()
    adapted = adapt(torch_encoder(), "2rskip+ln")
    with pytest.raises(RuntimeError, match="Missing key"):
        adapted.load_state_dict(state)
    missing = adapted.load_state_dict(state, strict=False).missing_keys
    assert all("residuals" in name or "spec_record" in name for name in missing)
    for other in (state, adapted.state_dict()):
        with pytest.raises(SettingError, match="^state dict comes from a model that is not adapted, or to another"):
            adapt(torch_encoder(), "prenorm+ln").load_state_dict(other, strict=False)


def as_state(output: Any) -> Any:
    return tuple(output) if isinstance(output, list) else output


@pytest.mark.parametrize("spec", ["2rskip+ln", "mhc", "siamese", "attnres"])
def test_timms_intermediates_are_what_the_stack_would_give_if_it_ended_there(spec):
    pytest.importorskip("timm", reason="timm is an optional library")
    model, states = copy.deepcopy(adapt(timm_vit(), spec)).eval(), []
    hook = model.blocks[0].register_forward_hook(lambda block, given, output: states.append(output))
    expected, x = model.forward_features(draw(2, 3, 16, 16)), draw(2, 3, 16, 16)
    hook.remove()
    found, between = model.forward_intermediates(x, output_fmt="NLC")
    assert torch.equal(found, expected)
    assert torch.equal(between[0], model.blocks[1].__dict__["rskip_closing"].leave(as_state(states[0]))[:, 1:])
    assert [each.shape for each in model.get_intermediate_layers(x, 2, reshape=True)] == [(2, WIDTH, 2, 2)] * 2
    assert torch.equal(model.forward_features(x), expected)
    if spec != "2rskip+ln":
        model.set_grad_checkpointing()
        with pytest.raises(SettingError, match="forward_intermediates does not work with gradient checkpointing"):
            model.forward_intermediates(x)
        model.set_grad_checkpointing(False)
        model.prune_intermediate_layers([0])
        with pytest.raises(AssertionError, match="the last block of an adapted stack was removed"):
            model.forward_intermediates(x)


def test_an_encoder_and_its_decoder_are_found_beside_other_stacks():
    def gains(model: nn.Module, path: str) -> list[float]:
        adapted = adapt(model, "deepnorm", host_supplies=["branch_gain"]).get_submodule(path)
        found = [each for each in adapted.modules() if isinstance(getattr(each, 'formula', None), DeepNorm)]
        return [round(found[0].formula.y.of.parts[0][0].value, 4), round(found[0].branch_gain, 4)]

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = torch_layer(nn.Transformer, num_encoder_layers=4, num_decoder_layers=3)
            self.other = torch_encoder()

        def forward(self, x: Tensor) -> Tensor:
            return self.pair(x, self.other(x + 1))


    assert gains(Beside(), "pair.encoder") == [1.2269, 0.5744]
    assert gains(Beside(), "pair.decoder") == [round(9**0.25, 4), round(36**-0.25, 4)]
    assert gains(Beside(), "other") == [round(4**0.25, 4), round(16**-0.25, 4)]
    assert gains(torch_decoder(), "layers") == [round(6**0.25, 4), round(24**-0.25, 4)]


class ReadsNormWeight(nn.Module):
    """A block that asks its normalisation's weight for the type to compute in, as Mamba's do."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mixer(self.norm(x.to(self.norm.weight.dtype)))


def test_a_block_may_read_the_weight_of_a_normalisation_that_is_removed():
    model = nn.Sequential(ReadsNormWeight(), ReadsNormWeight())
    adapt(model, "2rskip+ln", example=draw(2, 3, WIDTH))
    assert model(draw(2, 3, WIDTH)).shape == (2, 3, WIDTH)
    assert not any(name.endswith("1.norm.weight") for name in model.state_dict())
