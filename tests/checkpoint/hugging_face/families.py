"""Tiny random models of each family that has a reader, with their tokenizers, as transformers saves them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.checkpoint.conftest import both
from tests.checkpoint.hugging_face.conftest import WORDS, random_weights, sentencepiece, transformers

NLLB = ("deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans")


def text() -> list[str]:
    """Sentences of both languages, always the same."""
    generator = random.Random("joint")
    words = [word for line in WORDS.values() for word in line.split()]
    return [" ".join(generator.choices(words, k=8)) + generator.choice(".!?") for _ in range(300)]


@cache
def joint_pieces(kind: str) -> bytes:
    """A small SentencePiece model of both languages."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text()), model_writer=model, model_type=kind, vocab_size=120,
        hard_vocab_limit=False, num_threads=1, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def sizes(**others: Any) -> dict[str, Any]:
    stacks = both(ffn_dim=24, attention_heads=2, layers=2)
    return {**stacks, "d_model": 16, "max_position_embeddings": 64, **others}


def _tokenizer(folder: Path, kind: str, name: str, **about: Any) -> Any:
    """A tokenizer out of a SentencePiece model."""
    folder.mkdir(parents=True)
    (folder / "sentencepiece.bpe.model").write_bytes(joint_pieces(kind))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **about}))
    return getattr(transformers, name).from_pretrained(folder)


def write_m2m(folder: Path, **config: Any) -> Path:
    """M2M-100."""
    units = sentencepiece.SentencePieceProcessor(model_proto=joint_pieces("bpe"))
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *(units.id_to_piece(number) for number in range(3, len(units)))]
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(joint_pieces("bpe"))
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    transformers.M2M100Tokenizer(*files).save_pretrained(folder)
    settings = sizes(vocab_size=len(tokens) + 108, **config)
    return _save(folder, transformers.M2M100ForConditionalGeneration, transformers.M2M100Config(**settings))


def write_nllb(folder: Path, *, legacy: bool = False, hub: bool = False, **config: Any) -> Path:
    """NLLB-200, dense.

    :param legacy: the source order of its first version.
    :param hub: with the SentencePiece model and the lists of tokens, without tokenizer.json.
    """
    tokenizer = _tokenizer(
        folder.with_name(f"{folder.name} text"), "bpe", "NllbTokenizer",
        additional_special_tokens=[*NLLB], legacy_behaviour=legacy,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    if hub:
        (folder / "tokenizer.json").unlink()
        (folder / "sentencepiece.bpe.model").write_bytes(joint_pieces("bpe"))
        added = tokenizer.get_added_vocab()
        (folder / "added_tokens.json").write_text(json.dumps(added))
    settings = sizes(**{"vocab_size": len(tokenizer), **config})
    return _save(folder, transformers.M2M100ForConditionalGeneration, transformers.M2M100Config(**settings))


def write_mbart(folder: Path, *, kind: str = "MBart50Tokenizer", **config: Any) -> Path:
    """mBART-50, or mBART-25 with the kind MBartTokenizer."""
    tokenizer = _tokenizer(folder.with_name(f"{folder.name} text"), "unigram", kind)
    tokenizer.save_pretrained(folder)
    start = 2 if kind == "MBart50Tokenizer" else tokenizer.convert_tokens_to_ids("de_DE")
    settings = sizes(vocab_size=len(tokenizer), decoder_start_token_id=start, scale_embedding=True, **config)
    return _save(folder, transformers.MBartForConditionalGeneration, transformers.MBartConfig(**settings))


def write_fsmt(folder: Path, *, separate: bool = True, lowercase: bool = False, **config: Any) -> Path:
    """FSMT. `separate`: two vocabularies and two embeddings."""
    from rskip.text.subwords import BytePairEncoding

    folder.mkdir()
    codes = BytePairEncoding.learn(text(), size=60)
    merges = codes.files()["codes.bpe"].decode().split("\n", 1)[1]
    (folder / "merges.txt").write_text("".join(f"{line} 7\n" for line in merges.splitlines()))
    units = dict.fromkeys(unit for line in text() for unit in codes.segment(line).split())
    marked = [unit[:-2] if unit.endswith("@@") else f"{unit}</w>" for unit in units]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    orders = [[*special, *marked], [*special, *(marked[:2:-1] if separate else marked)]]
    files = [folder / f"vocab-{side}.json" for side in ("src", "tgt")]
    for file, tokens in zip(files, orders, strict=True):
        file.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    tokenizer = transformers.FSMTTokenizer(
        langs=["en", "de"], do_lower_case=lowercase,
        src_vocab_file=str(files[0]), tgt_vocab_file=str(files[1]), merges_file=str(folder / "merges.txt"),
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    settings = sizes(
        langs=["en", "de"], src_vocab_size=len(orders[0]), tgt_vocab_size=len(orders[1]),
        tie_word_embeddings=not separate, **config,
    )  # fmt: skip
    return _save(folder, transformers.FSMTForConditionalGeneration, transformers.FSMTConfig(**settings))


def _save(folder: Path, kind: Any, config: Any) -> Path:
    random_weights(kind(config)).save_pretrained(folder)
    return folder


class Family(NamedTuple):
    """How a family is written, and what it is loaded with.

    languages: source and target for `rskip`.
    tokenizer: transformers' class.
    start, first: the token that decoding starts from, and one that is forced behind it, in words of the tokenizer.
    """

    write: Callable[[Path], Path]
    model: str
    tokenizer: str
    languages: tuple[str, str]
    start: str = "</s>"
    first: str | None = None
    end: str = "</s>"


FAMILIES = {
    "m2m": Family(write_m2m, "M2M100", "M2M100Tokenizer", ("en", "de"), first="__de__"),
    "nllb": Family(write_nllb, "M2M100", "NllbTokenizer", ("eng_Latn", "deu_Latn"), first="deu_Latn"),
    "nllb legacy": Family(
        lambda folder: write_nllb(folder, legacy=True, hub=True),
        "M2M100", "NllbTokenizer", ("eng_Latn", "deu_Latn"), first="deu_Latn",
    ),
    "mbart50": Family(write_mbart, "MBart", "MBart50Tokenizer", ("en_XX", "de_DE"), first="de_DE"),
    "mbart25": Family(
        lambda folder: write_mbart(folder, kind="MBartTokenizer", tie_word_embeddings=False),
        "MBart", "MBartTokenizer", ("en_XX", "de_DE"), start="de_DE", end="de_DE",
    ),
    "fsmt": Family(write_fsmt, "FSMT", "FSMTTokenizer", ("en", "de")),
    "fsmt shared": Family(lambda folder: write_fsmt(folder, separate=False), "FSMT", "FSMTTokenizer", ("en", "de")),
}  # fmt: skip
