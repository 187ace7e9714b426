"""Stock Transformers that fairseq trained give fairseq's own translations."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.text import TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding
from rskip.translation import Translator

CODES = "#version: 0.2\nd o\ndo g</w>\nt h\nth e</w>\nr u\nru n\ni n\nm a\nma n</w>\n"
ENGLISH = ["The dog's dogs run.", "A man runs in the park with the dogs.", "Dogs!", "the man-made ponds & trees"]


def save_stock(folder: Path, *, normalize_before: bool, **flags: Any) -> None:
    """A random stock Transformer over byte-pair units, in the files of fairseq-train and fairseq-preprocess."""
    fairseq_models = pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")
    from fairseq.data import Dictionary
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    (folder / "data-bin").mkdir(parents=True)
    (folder / "save").mkdir()
    text = TextPipeline(TextConfig(source_language="en", target_language="de"), BytePairEncoding(CODES))
    for language in ("en", "de"):
        dictionary = Dictionary()
        for sentence in ENGLISH[:-1]:
            for token in text.encode(sentence).split():
                dictionary.add_symbol(token if language == "en" else token.upper())
        dictionary.finalize(padding_factor=8)
        dictionary.save(str(folder / f"data-bin/dict.{language}.txt"))
    (folder / "data-bin/bpe.codes").write_text(CODES)
    args = Namespace(
        arch="transformer_tiny",
        task="translation",
        data=str(folder / "data-bin"),
        source_lang="en",
        target_lang="de",
        encoder_normalize_before=normalize_before,
        decoder_normalize_before=normalize_before,
        **flags,
    )
    fairseq_models.ARCH_CONFIG_REGISTRY["transformer_tiny"](args)
    task = TranslationTask.setup_task(TranslationConfig(data=args.data, source_lang="en", target_lang="de"))
    torch.manual_seed(1)
    model = fairseq_models.ARCH_MODEL_REGISTRY["transformer_tiny"].build_model(args, task)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif "proj" in name or "embed_tokens" in name:
            parameter.data *= 2  # probabilities far from equal ones
    state = {
        "args": args,
        "model": model.state_dict(),
        "optimizer_history": [{"criterion_name": "", "lr_scheduler_state": {}, "num_updates": 1}],
        "extra_state": {},
        "last_optimizer_state": {},
    }
    torch.save(state, folder / "save/checkpoint_best.pt")


Hypotheses = list[tuple[str, float, list[float], torch.Tensor]]


def load_in_fairseq(folder: Path) -> Callable[..., Hypotheses]:
    """What fairseq gives a sentence: tokens, score, positional scores, attention (S, T) of each hypothesis."""
    from fairseq import checkpoint_utils
    from fairseq.sequence_generator import SequenceGenerator

    [model], _, task = checkpoint_utils.load_model_ensemble_and_task([str(folder / "save/checkpoint_best.pt")])
    model.eval()
    dictionary = task.target_dictionary

    def hypotheses(sentence: str, **settings: Any) -> Hypotheses:
        source = task.source_dictionary.encode_line(sentence, add_if_not_exist=False).long()[None]
        sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)])}}
        with torch.no_grad():
            found = SequenceGenerator([model], dictionary, **settings).generate([model], sample)[0]
        return [
            (
                dictionary.string(each["tokens"]),
                float(each["score"]),
                each["positional_scores"].tolist(),
                each["attention"],
            )
            for each in found
        ]

    return hypotheses


@pytest.mark.filterwarnings("ignore")  # hydra's, of fairseq's loading
@pytest.mark.parametrize(
    ("normalize_before", "flags"),
    [
        (False, {}),
        pytest.param(
            True,
            {
                "encoder_learned_pos": True,
                "decoder_learned_pos": True,
                "share_decoder_input_output_embed": True,
                "layernorm_embedding": True,
                "activation_fn": "gelu",
                "no_scale_embedding": True,
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["postnorm", "prenorm"],
)
def test_the_same_hypotheses_as_fairseqs_generator(
    normalize_before: bool, flags: dict[str, Any], tmp_path: Path
) -> None:
    save_stock(tmp_path, normalize_before=normalize_before, **flags)
    translator = Translator.from_pretrained(tmp_path / "save/checkpoint_best.pt", dictionaries=tmp_path / "data-bin")
    assert (translator.source_language, translator.target_language) == ("en", "de")
    fairseqs = load_in_fairseq(tmp_path)
    for beam in (1, 4):
        found = translator.translate(
            ENGLISH, beam=beam, nbest=beam, max_length_a=1.5, max_length_b=5, token_scores=True, attention=True
        )
        for sentence, translation in zip(ENGLISH, found, strict=True):
            tokens = translator.tokenizer.text.encode(sentence)
            assert translation.source_tokens == tuple(tokens.split())
            expected = fairseqs(tokens, beam_size=beam, max_len_a=1.5, max_len_b=5)
            assert len(expected) == len(translation.hypotheses)
            for ours, (theirs, score, token_scores, attention) in zip(translation.hypotheses, expected, strict=True):
                assert " ".join(ours.tokens) == theirs
                assert ours.score == pytest.approx(score, abs=1e-4)
                assert ours.token_scores == pytest.approx(token_scores, abs=1e-3)
                assert ours.text == translator.tokenizer.text.decode(theirs)
                torch.testing.assert_close(torch.from_numpy(ours.attention).T, attention, rtol=0, atol=1e-4)
