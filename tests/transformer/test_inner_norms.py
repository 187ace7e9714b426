"""Families that change what is inside the branch: whole Transformers of them written out, for logits and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from rskip.transformer import Transformer
from rskip.transformer.attention import additive_mask

BRANCHES = {"encoder": ("self_attn", "ffn"), "decoder": ("self_attn", "encoder_attn", "ffn")}


@dataclass
class Written:
    """What a formula is written with: parameters by name, normalisations and attention by definition."""

    model: Transformer
    rms: bool = False
    norms_projected: bool = False  # queries, keys and values of each head
    hidden: dict[str, Tensor] = field(default_factory=dict)  # by what is attended to: where no query may look
    memory: Tensor | None = None
    first: dict[str, list[Tensor]] = field(default_factory=dict)  # values of each head in a stack's first layer

    def p(self, name: str) -> Tensor:
        return self.model.get_parameter(name)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.p(f"{name}.weight").T + self.p(f"{name}.bias")

    def norm(self, name: str, z: Tensor) -> Tensor:
        if self.rms:
            return z / torch.sqrt((z * z).mean(-1, keepdim=True) + 1e-5) * self.p(f"{name}.weight")
        centred = z - z.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
        return scaled * self.p(f"{name}.weight") + self.p(f"{name}.bias")

    def heads(self, layer: str, branch: str, x: Tensor) -> Tensor:
        """softmax(QKᵀ/√D)V of every head, side by side."""
        name = f"{layer}.{branch}"
        stack = "memory" if branch == "encoder_attn" else layer.partition(".")[0]
        seen = self.memory if stack == "memory" else x
        query, key, value = (
            self.linear(f"{name}.{part}_proj", z) for part, z in (("q", x), ("k", seen), ("v", seen))
        )
        size = query.size(-1) // 4
        outputs = []
        for head in range(4):
            q, k, v = (each[..., head * size : (head + 1) * size] for each in (query, key, value))
            if self.norms_projected:
                q, k, v = (self.norm(f"{name}.{part}_norm", z) for part, z in (("query", q), ("key", k), ("value", v)))
            if branch == "self_attn" and self.model.config.value_residual != "none":
                first = self.first.setdefault(stack, [])
                if layer.endswith("layers.0"):
                    first.append(v)
                else:
                    learned = self.model.config.value_residual == "learned"
                    factors = self.p(f"{name}.value_residual.factors") if learned else (0.5, 0.5)
                    v = factors[0] * first[head] + factors[1] * v
            scores = (q @ k.mT / math.sqrt(size)).masked_fill(self.hidden[stack], -math.inf)
            outputs.append(scores.softmax(-1) @ v)
        return torch.cat(outputs, -1)

    def inner(self, layer: str, x: Tensor) -> Tensor:
        return self.linear(f"{layer}.fc1", x).relu()


Block = Callable[[Written, str, str, Tensor], Tensor]


def subln(w: Written, layer: str, branch: str, x: Tensor) -> Tensor:
    z = w.norm(f"{layer}.{branch}_connection.norm", x)
    if branch == "ffn":
        return x + w.linear(f"{layer}.fc2", w.norm(f"{layer}.hidden_norm", w.inner(layer, z)))
    heads = w.heads(layer, branch, z)
    if branch == "self_attn":
        heads = w.norm(f"{layer}.self_attn.heads_norm", heads)
    return x + w.linear(f"{layer}.{branch}.out_proj", heads)


def normformer(w: Written, layer: str, branch: str, x: Tensor) -> Tensor:
    z = w.norm(f"{layer}.{branch}_connection.norm", x)
    if branch == "ffn":
        skip = w.p(f"{layer}.ffn_connection.skip_weight") * x
        return skip + w.linear(f"{layer}.fc2", w.norm(f"{layer}.hidden_norm", w.inner(layer, z)))
    heads = w.heads(layer, branch, z)
    if branch == "encoder_attn":
        return x + w.linear(f"{layer}.encoder_attn.out_proj", heads)
    heads = heads * w.p(f"{layer}.self_attn.head_scale").repeat_interleave(heads.size(-1) // 4)
    return x + w.norm(f"{layer}.self_attn.output_norm", w.linear(f"{layer}.self_attn.out_proj", heads))


def hybridnorm(w: Written, layer: str, branch: str, x: Tensor) -> Tensor:
    """As the paper has it: MHA(x) + x, and with n = norm(x) FFN(n) + n. Here the block before the FFN gives n."""
    attention = {"encoder": "self_attn", "decoder": "encoder_attn"}[layer.partition(".")[0]]
    if branch != "ffn":
        return x + w.linear(f"{layer}.{branch}.out_proj", w.heads(layer, branch, x))
    n = w.norm(f"{layer}.{attention}_connection.norm", x)
    return n + w.linear(f"{layer}.fc2", w.inner(layer, n))


def hybridnorm_star(w: Written, layer: str, branch: str, x: Tensor) -> Tensor:
    """The first layer's blocks are pre-norm."""
    if not layer.endswith("layers.0"):
        return hybridnorm(w, layer, branch, x)
    return prenorm(w, layer, branch, x)


def prenorm(w: Written, layer: str, branch: str, x: Tensor) -> Tensor:
    z = w.norm(f"{layer}.{branch}_connection.norm", x)
    if branch == "ffn":
        return x + w.linear(f"{layer}.fc2", w.inner(layer, z))
    return x + w.linear(f"{layer}.{branch}.out_proj", w.heads(layer, branch, z))


BLOCKS: dict[str, Block] = {
    "subln": subln,
    "subln+rms": subln,
    "normformer:res_scale=true": normformer,
    "hybridnorm": hybridnorm,
    "hybridnorm+rms:first=prenorm": hybridnorm_star,
    "prenorm+ln": prenorm,
}


def written_out(w: Written, block: Block, source: Tensor, prefix: Tensor) -> Tensor:
    """Logits of a model whose closing norms are there, as all these families' are."""
    padding = source.eq(1)[:, None]
    length = prefix.size(1)
    w.hidden = {"encoder": padding, "memory": padding, "decoder": torch.ones(length, length).triu(1).bool()}
    for stack, tokens in (("encoder", source), ("decoder", prefix)):
        module = w.model.get_submodule(stack)
        places = torch.cumsum(tokens.ne(1), 1) * tokens.ne(1) + 1
        x = module.embed(tokens, places, length=tokens.size(1))
        for number in range(len(module.layers)):
            for branch in BRANCHES[stack]:
                x = block(w, f"{stack}.layers.{number}", branch, x)
        x = w.norm(f"{stack}.layer_norm", x)
        if stack == "encoder":
            w.memory = x
    return x @ w.p("decoder.output_projection.weight").T


@pytest.mark.parametrize(
    ("connection", "value_residual"),
    [*((connection, "none") for connection in BLOCKS), ("prenorm+ln", "fixed"), ("hybridnorm", "learned")],
)
def test_a_transformer_follows_the_formula(build, connection, value_residual, source, prefix):
    model = build(connection, value_residual=value_residual, encoder_layers=3)
    w = Written(model, rms="+rms" in connection, norms_projected="hybrid" in connection)
    parameters = dict(model.named_parameters())
    logits, expected = model(source, prefix), written_out(w, BLOCKS[connection], source, prefix)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)
    direction = torch.randn(logits.shape, dtype=logits.dtype, generator=torch.Generator().manual_seed(4))
    found, wanted = (torch.autograd.grad((y * direction).sum(), list(parameters.values())) for y in (logits, expected))
    for name, one, other in zip(parameters, found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10, msg=name)


def test_normformers_layer_is_fairseqs(build):
    """fairseq 0.12.2 scales heads after the output map, the paper, fairseq2 and x-transformers before it."""
    pytest.importorskip("fairseq", reason="needs fairseq: run `rskip setup-fairseq`")
    from fairseq.models.transformer import TransformerConfig as StockConfig
    from fairseq.modules.transformer_layer import TransformerDecoderLayerBase

    config = StockConfig()
    config.decoder.embed_dim = config.encoder.embed_dim = 16
    config.decoder.ffn_embed_dim, config.decoder.attention_heads, config.decoder.normalize_before = 24, 4, True
    config.dropout = config.attention_dropout = 0.0
    for option in ("scale_attn", "scale_fc", "scale_resids"):
        setattr(config, option, True)
    stock = TransformerDecoderLayerBase(config).double().eval()
    ours = build("normformer:res_scale=true").decoder.layers[0]
    torch.nn.init.ones_(ours.self_attn.head_scale)
    names = {
        "self_attn.output_norm": "attn_ln",
        "hidden_norm": "ffn_layernorm",
        "self_attn_connection.norm": "self_attn_layer_norm",
        "encoder_attn_connection.norm": "encoder_attn_layer_norm",
        "ffn_connection.norm": "final_layer_norm",
        "ffn_connection.skip_weight": "w_resid",
    }
    state = {name: tensor for name, tensor in ours.state_dict().items() if name != "self_attn.head_scale"}
    for one, other in names.items():
        state = {other + name.removeprefix(one) if name.startswith(one) else name: state[name] for name in state}
    stock.load_state_dict(state)
    x, memory = torch.randn(2, 3, 5, 16, dtype=torch.float64)
    hidden = torch.ones(5, 5).triu(1).bool()
    expected = stock(x.transpose(0, 1), memory.transpose(0, 1), self_attn_mask=additive_mask(hidden, x))[0]
    found = ours(x, memory, None, None)
    torch.testing.assert_close(found, expected.transpose(0, 1), rtol=0, atol=1e-6)  # its softmax is in float32
