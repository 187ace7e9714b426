"""What the readers' models and tokenizers are compared with."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from tests.checkpoint.hugging_face.conftest import transformers


def reference_search(
    model: Any,
    source: Tensor,
    *,
    beam: int,
    longest: int,
    start: int,
    end: int,
    padding: int,
    first: int | None = None,
) -> list[tuple[list[int], float]]:
    """fairseq's beam search over their model, of one sentence of their numbers, as plainly as can be.

    :param first: a token that is forced at the beginning of each hypothesis. Its score counts.
    """
    live: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    memory = model.get_encoder()(source[None])
    for length in range(longest + 1):
        prefixes = torch.tensor([[start, *tokens] for tokens, _ in live])
        known = {"input_ids": source.expand(len(live), -1)}  # FSMT makes its causal mask only with them
        states = type(memory)(last_hidden_state=memory.last_hidden_state.expand(len(live), -1, -1))
        logits = model(**known, encoder_outputs=states, decoder_input_ids=prefixes, use_cache=False).logits[:, -1]
        scores = logits.log_softmax(-1)
        scores[:, padding] = -torch.inf
        if length == 0:  # fairseq's default --min-len is 1
            scores[:, end] = -torch.inf
        if length == longest or (length == 0 and first is not None):
            only = first if length == 0 and first is not None else end
            kept = scores[:, only].clone()
            scores.fill_(-torch.inf)[:, only] = kept
        total = scores + torch.tensor([score for _, score in live])[:, None]
        best = total.flatten().topk(2 * beam)
        found = [
            (live[place // total.size(1)][0], place % total.size(1), score)
            for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if score > -torch.inf
        ]
        finished += [(tokens, score / (length + 1)) for tokens, token, score in found[:beam] if token == end]
        if len(finished) >= beam:
            break
        live = [([*tokens, token], score) for tokens, token, score in found if token != end][:beam]
    return sorted(finished[:beam], key=lambda each: -each[1])


ADDED = [
    "<name>",
    "Fussballverein",
    "<na",
    "New York",
    transformers.AddedToken("<stripped>", lstrip=True, rstrip=True, normalized=False),
    transformers.AddedToken("Hundehaus", single_word=True, normalized=False),
    transformers.AddedToken("1x", normalized=True),
    transformers.AddedToken("<hidden>", special=True, normalized=False),
]


def lines_with_added_tokens() -> list[str]:
    """Lines with these tokens between words and spaces, always the same.

    Next to a word that stands alone, Hugging Face's tokenizers in Python overlook other tokens.
    """
    generator = random.Random("added")
    tokens = [token for token in map(str, ADDED) if token != "Hundehaus"]
    words = [" Hundehaus ", "xHundehaus ", " Hundehaus.", "the dog", "Hund", ".", "x", "\u2460x", "<", "name>"]
    parts = [*tokens, *words, " ", " ", "  ", "\u3000"]
    return ["".join(generator.choices(parts, k=generator.randint(1, 8))) for _ in range(500)]


SIGNS = "😀 👩‍👩‍👧 𝔊 ﬁ ß Ωmega 日本語 שלום 🇩🇪 ½ ' \" < >> << &amp; @-@ @@ \\ %"
ODD = [
    *("\u00a0", "\u3000", "\u2028", "\u200b", "\u200d", "\ufeff", "\u0301", "\t", "  ", "\x85", "\x1c", "\u2581"),
    *SIGNS.split(),
]


def odd_lines() -> list[str]:
    generator = random.Random(11)
    words = ["the", "dog", "runs", "Hund", "über", "unknownword", "don't", "house."]
    lines = [
        "", " ", ">>fra<<", ">>fra<< the dog", ">>xyz<< the dog", ">>fra<<the dog >>deu<<", " >>fra<< dog", "><<<",
        ">><<", ">> a b << c",
    ]  # fmt: skip
    while len(lines) < 200:
        parts = generator.choices([*words, *ODD], k=generator.randint(1, 12))
        lines.append(generator.choice([" ", ""]).join(parts))
    return lines
