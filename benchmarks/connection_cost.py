"""The cost of each family of connections in training: in Transformers, a PreAct-ResNet and language models.

    python benchmarks/connection_cost.py [--counts] [--rounds 9] [--only hyper sas:gate=single] [--models translation]

It counts parameters, forward and backward operator calls, and the bytes that they read and write, as on a GPU
(tests/emulated_device.py). On a CPU it measures the memory that a forward pass saves for the backward pass, and times a
full update, alternating with the baseline in the same process. The ratio is the median over rounds. It also measures
the mean cosine similarity between positions of a sentence after the untrained encoder (docs/analysis.md), for random
sentences and several initialisations. It covers rskip's families with their default specs, and some variants; in
language models, the connections of recipes/lm_field.yaml, with the recipe's model and update, on one thread.

Prints tables and appends one JSON line to study/results/benchmarks/connection_cost.jsonl. docs/costs.md shows the last
values of each connection.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from measuring.pairs import compare
from measuring.record import append_record, benchmark_parser
from torch import Tensor, nn
from torch.nn import functional

from rskip.analysis.signals import similarity
from rskip.checkpoint import untrained_language_model
from rskip.comparison.plan import kept_bytes
from rskip.connections import ConnectionSpec, Family, check_connection, list_connections, parse_connection
from rskip.cpu.loss import cross_entropy_kernel
from rskip.experiments.recipe import load_recipes
from rskip.language_modeling.model_file import model_config
from rskip.language_modeling.training import TrainingSettings, parameter_groups
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.label_smoothing import label_smoothed_cross_entropy
from rskip.vision import preact_resnet
from tests.emulated_device import emulated_cuda

PADDING, VOCABULARY = 1, 10_000
SENTENCES, LENGTH, IMAGES = 64, 32, 128
CHARACTERS = 68  # the dictionary of Tiny Shakespeare
LM_FIELD = Path(__file__).parents[1] / "recipes" / "lm_field.yaml"
INITIALISATIONS = 5  # the cosine similarity is a mean over these

Row = dict[str, Any]
Inputs = tuple[Tensor, ...]


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)


@dataclass(frozen=True)
class Model:
    """A model for comparing connections.

    :param feature_dim: feature dimension of its connections.
    :param baseline: the connection that others are compared with.
    :param variants: specs in addition to each family's default.
    :param only: specs to measure; None: those of all families.
    :param outputs: runs a forward pass without the loss.
    :param loss: computes the loss from outputs and targets.
    :param encode: returns the positions (B, T, C) for the cosine similarity, or None.
    :param clip_norm: maximum norm of an update's gradient, or None.
    :param threads: threads of a timed update; None: PyTorch's default.
    """

    description: str
    feature_dim: int
    baseline: str
    variants: tuple[str, ...]
    build: Callable[[str], nn.Module]
    inputs: Callable[[], Inputs]
    outputs: Callable[[Any, Inputs], Tensor]
    loss: Callable[[Any, Tensor, Tensor], Tensor]
    encode: Callable[[Any, Inputs], Tensor] | None = None
    only: tuple[str, ...] | None = None
    optimiser: Callable[[nn.Module], torch.optim.Optimizer] = _adam
    clip_norm: float | None = None
    threads: int | None = None


def _transformer(connection: str, layers: int) -> Transformer:
    spec, _, values = connection.partition(" value-residual=")
    sizes = {"embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4, "layers": layers, "connection": spec}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    words = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "share_all_embeddings": True}
    config = TransformerConfig(**words, padding_index=PADDING, dropout=0.2, value_residual=values or "none", **sides)
    model = Transformer(config)
    model.decoder.left_padded = False
    return model


def _sentences() -> Inputs:
    return tuple(torch.randint(4, VOCABULARY, (SENTENCES, LENGTH)) for _ in range(3))


def _features(model: Transformer, inputs: Inputs) -> Tensor:
    return model.decoder.features(inputs[1], model.encoder(inputs[0]))


def _token_loss(model: Transformer, features: Tensor, target: Tensor) -> Tensor:
    weight = model.decoder.embed_tokens.weight
    loss, _ = label_smoothed_cross_entropy(
        features, weight, target, epsilon=0.1, padding_index=PADDING, find_kernel=cross_entropy_kernel
    )
    return loss / target.numel()


# the forms of models of 2026 that are options, and the families that recipes/lm_field.yaml is older than
OF_2026 = ("mhc:reads=previous", "mhc:exit=head", "attnres:layers=2", "attnres:queries=3", "x0:backout=true")
NEW_FAMILIES = ("gated_residual", "lanes")


def _translation(layers: int) -> Model:
    return Model(
        description=f"Transformer of 128 features, FFN dimension 256, 4 heads, {layers} + {layers} layers, "
        f"{SENTENCES} x {LENGTH} tokens a side, a vocabulary of {VOCABULARY:,}",
        feature_dim=-1,
        baseline="1xskip+ln",
        variants=(
            "1xskip", "2xskip+ln", "3xskip+ln", "prenorm+ln value-residual=learned",
            "sas:gate=single", "sas:host=prenorm", "hyper:form=static", "hyper:streams=2",
            "askip+ln:form=depth", "askip+ln:form=recursive", "askip+ln:form=mixture", *OF_2026,
        ),
        build=lambda connection: _transformer(connection, layers),
        inputs=_sentences,
        outputs=_features,
        loss=_token_loss,
        encode=lambda model, inputs: model.encoder(inputs[0]).states,
    )


def _language_model(depth: str) -> Model:
    """The model, the update and the connections of one depth of recipes/lm_field.yaml."""
    variants: list[TrainingSettings] = [
        recipe.settings.train for recipe in load_recipes(LM_FIELD, variants=[f"{depth}_*_lr1e-3"])
    ]
    common = variants[0]
    shape = (common.batch_size, common.context)
    return Model(
        description=f"language model of GPT-2's shape, {common.features} features, {common.heads} heads, "
        f"{common.layers} layers, {shape[0]} x {shape[1]} characters, on one thread",
        feature_dim=-1,
        baseline="prenorm+ln",
        variants=(),
        only=tuple(dict.fromkeys(["prenorm+ln", *(each.connection for each in variants), *OF_2026, *NEW_FAMILIES])),
        build=lambda connection: untrained_language_model(
            model_config(replace(common, connection=connection), CHARACTERS)
        ),
        inputs=lambda: (torch.randint(4, CHARACTERS, shape), torch.randint(4, CHARACTERS, shape)),
        outputs=lambda model, inputs: model(inputs[0]),
        loss=lambda model, logits, target: functional.cross_entropy(logits.flatten(0, 1), target.flatten()),
        optimiser=lambda model: torch.optim.AdamW(
            parameter_groups(model, common), lr=common.lr, betas=(common.beta1, common.beta2), fused=True
        ),
        clip_norm=common.clip_norm,
        threads=1,
    )


MODELS = {
    "translation": _translation(6),
    "translation_18x18": _translation(18),
    "vision": Model(
        description=f"PreAct-ResNet-20, {IMAGES} images of 32 x 32",
        feature_dim=1,
        baseline="1xskip",
        variants=("2xskip+ln", "2rskip+bn", "sas:alpha_bias=3,beta_bias=-3", "sas:gate=single", "laurel:form=rw"),
        build=lambda connection: preact_resnet(20, connection),
        inputs=lambda: (torch.randn(IMAGES, 3, 32, 32), torch.randint(10, (IMAGES,))),
        outputs=lambda model, inputs: model(inputs[0]),
        loss=lambda model, logits, target: functional.cross_entropy(logits, target),
    ),
    "language_modeling_4": _language_model("l4"),
    "language_modeling_24": _language_model("l24"),
}


def specs(model: Model) -> list[str]:
    """The baseline, then each family that the model supports, by name, with its variants; or the model's own list."""
    if model.only is not None:
        return list(model.only)
    found = dict.fromkeys([model.baseline])
    for family in list_connections():
        own = [spec for spec in _default_specs(family) if _suits(spec, model.feature_dim)]
        variants = [text for text in model.variants if _spec(text).family == family.name]
        found |= dict.fromkeys([*map(str, own[:1]), *variants])
    return list(found)


def _spec(text: str) -> ConnectionSpec:
    """The connection of a text in MODELS. The text may contain further settings of the model after a space."""
    return parse_connection(text.split(" ")[0])


def _default_specs(family: Family) -> Iterator[ConnectionSpec]:
    """The family with LN and without normalisation; the first that the model supports is compared."""
    factor = None if family.factor is None else 2 if family.factor.integer else 1
    for norm in ("ln", None):
        if norm in family.norms:
            yield ConnectionSpec(family.name, factor, norm)


def _suits(spec: ConnectionSpec, feature_dim: int) -> bool:
    try:
        check_connection(spec, feature_dim)
    except SettingError:
        return False
    return True


def count(model: Model, connection: str) -> Row:
    """Parameters, calls and bytes as on a GPU in float32 and training mode, bytes kept on a CPU; without the loss."""
    torch.manual_seed(1)
    built = model.build(connection).train()
    inputs = model.inputs()
    row: Row = {
        "parameters": sum(each.numel() for each in built.parameters()),
        "kept_megabytes": round(kept_bytes(built, lambda: model.outputs(built, inputs)) / 1e6, 3),
    }
    with emulated_cuda(values=False) as counts:
        built = model.build(connection).train().to("cuda")
        on_device = tuple(each.to("cuda") for each in inputs)
        model.outputs(built, on_device)  # builds caches before counting
        counts.clear()
        outputs = model.outputs(built, on_device)
        row |= {"calls_forward": counts.calls.total(), "megabytes_forward": round(counts.traffic.total() / 1e6, 3)}
        counts.clear()
        outputs.backward(torch.ones_like(outputs))
        row |= {"calls_backward": counts.calls.total(), "megabytes_backward": round(counts.traffic.total() / 1e6, 3)}
    return row


def cosine_similarity(model: Model, connection: str) -> float:
    """The mean cosine similarity between two positions of a sentence before training, as in `rskip analyse signals`."""
    assert model.encode is not None
    found = []
    for seed in range(INITIALISATIONS):
        torch.manual_seed(seed)
        built = model.build(connection).eval()
        with torch.no_grad():
            positions = model.encode(built, model.inputs())
        found.append(similarity(positions, positions.new_ones(positions.shape[:2], dtype=torch.bool)).mean())
    return float(torch.stack(found).mean())


def update(model: Model, connection: str) -> Callable[[], None]:
    """One update on one batch: forward, loss, backward, the optimiser's step."""
    torch.manual_seed(1)
    built = model.build(connection).train()
    inputs = model.inputs()
    optimizer = model.optimiser(built)

    def step() -> None:
        optimizer.zero_grad()
        model.loss(built, model.outputs(built, inputs), inputs[-1]).backward()
        if model.clip_norm is not None:
            nn.utils.clip_grad_norm_(built.parameters(), model.clip_norm)
        optimizer.step()

    return step


def measure(model: Model, connection: str, rounds: int) -> Row:
    """Milliseconds of an update and of the baseline's update, which alternate, and the median ratio over rounds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(model.threads or threads)
    found = compare(update(model, connection), update(model, model.baseline), rounds)
    torch.set_num_threads(threads)
    return {"update_ms": found["before_ms"], "baseline_ms": found["now_ms"], "update_ratio": found["ratio"]}


def main() -> None:
    parser = benchmark_parser(__doc__, "connection_cost")
    parser.add_argument("--counts", action="store_true", help="only count, without timing")
    parser.add_argument("--rounds", type=int, default=9, help="number of timed pairs of updates (default: 9)")
    parser.add_argument("--only", nargs="+", metavar="SPEC", help="connections to measure (default: all)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS], help="default: all")
    args = parser.parse_args()
    try:
        for text in args.only or ():
            _spec(text)
    except SettingError as error:
        parser.error(str(error))
    rows: list[Row] = []
    for name in args.models:
        model = MODELS[name]
        print(f"\n{name}: {model.description}")
        for connection in specs(model) if args.only is None else args.only:
            if not _suits(_spec(connection), model.feature_dim):
                continue
            row = {"model": name, "connection": connection, **count(model, connection)}
            if model.encode is not None:
                row["alike"] = round(cosine_similarity(model, connection), 3)
            if not args.counts:
                row |= measure(model, connection, args.rounds)
            gc.collect()  # tensors of an emulated device are in reference cycles
            print("  " + "  ".join(f"{key} {value}" for key, value in row.items() if key != "model"), flush=True)
            rows.append(row)
    described = {
        name: {"description": MODELS[name].description, "baseline": MODELS[name].baseline} for name in args.models
    }
    timed = {} if args.counts else {"rounds": args.rounds}
    append_record(args.output, "connection_cost", {**timed, "models": described, "rows": rows})


if __name__ == "__main__":
    main()
