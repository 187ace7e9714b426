"""Texts about a model: description, card, line of a list, row of the table."""

from __future__ import annotations

import msgspec

from rskip.settings.paper import Paper
from rskip.zoo.model_card import describe, model_card
from rskip.zoo.registry import OF_RUN, OF_WEIGHTS, ModelEntry, ModelFile, ModelScore

replace = msgspec.structs.replace
OF_FILE = ModelScore(
    dataset="d-en-de", split="test", metric="sacrebleu", value=39.71, spread=None, seeds=(2,), signature="a|b",
    of=OF_WEIGHTS,
)  # fmt: skip
OF_SEEDS = replace(OF_FILE, value=39.5, spread=0.25, seeds=(1, 2), of=OF_RUN)
EXACT = replace(OF_SEEDS, metric="accuracy", value=7.0, spread=0.0, signature=None)
ENTRY = ModelEntry(
    name="transformer_tiny_sas.d.en-de",
    task="translation",
    architecture="transformer_tiny",
    connection="sas",
    parameters=2_500_000,
    folder="checkpoints/run",
    url=None,
    files={
        "model.safetensors": ModelFile(size=5_000_000, sha256="0" * 64),
        "dict.en.txt": ModelFile(size=1, sha256="1" * 64),
        "text/pipeline.json": ModelFile(size=1, sha256="2" * 64),
    },
    dtype="float16",
    figures=(OF_FILE, OF_SEEDS, EXACT),
    recipe="run/mine",
    overrides={"train.lr": 0.2},
    seed=2,
    commit="a" * 40,
    uncommitted_changes=True,
    licence="MIT",
    data_terms="research use",
    paper=Paper(title="T", authors="A, B", url="https://example.org", part="Eq. 4"),
)


def test_the_description_is_these_lines() -> None:
    assert describe(ENTRY) == "\n".join(
        [
            "transformer_tiny_sas.d.en-de",
            "  transformer_tiny with the connection sas, translation, 2,500,000 parameters, stored in float16",
            "  data              research use",
            "  sacreBLEU         39.71 as published in float16, seed 2, on test of d-en-de",
            "  sacreBLEU         39.50 ± 0.25 as trained, mean ± std over seeds 1, 2, on test of d-en-de",
            "  exactly right, %  7.00 ± 0.00 as trained, mean ± std over seeds 1, 2, on test of d-en-de",
            "  recipe            rskip run run/mine --seeds 2 --set train.lr=0.2",
            f"  commit            {'a' * 40} with uncommitted changes",
            "  licence           MIT (code and weights)",
            "  connection from   A, B: T, Eq. 4, https://example.org",
            "  files             5.0 MB: model.safetensors, dict.en.txt, text/pipeline.json",
        ]
    )


def test_a_card_says_what_the_model_is_for_before_its_scores() -> None:
    card = model_card(ENTRY)
    assert "\n## Use\n\nFor sentences like those of `d-en-de`, " in card
    assert card.index("\nNot for other text, ") < card.index("## Scores")
