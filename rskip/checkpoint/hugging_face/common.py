"""What the readers of Hugging Face's folders share: settings, weights, tokens, and the dictionary of the tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Literal, NamedTuple

import msgspec
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.checkpoint.stock import from_stock
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, first_names
from rskip.settings.kinds import Positions
from rskip.text.added import AddedToken
from rskip.text.dictionary import BOS, EOS, PAD, UNK, Dictionary

MOST_UNNAMED = 1023  # rows behind the vocabulary's, of an embedding that was filled up to a multiple of 1,024
SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
SIDES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
TIED = (SHARED, *SIDES, OUTPUT)  # names of a table that is all four; files hold one of them
Activation = Literal["relu", "gelu", "tanh", "linear", "swish", "silu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"]
ACTIVATIONS = {
    **{name: name for name in ("relu", "gelu", "tanh", "linear", "swish")},
    "silu": "swish",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_accurate"),
}
# what belongs to tokens and positions
_APART = re.compile(
    r"model\.(shared|(encoder|decoder)\.embed_(tokens|positions)|decoder\.output_projection)\.weights?"
    r"|lm_head\.weight|final_logits_bias"
)


class StackSettings(msgspec.Struct, kw_only=True):
    """What config.json says of a model; the defaults are those of transformers for most families."""

    d_model: int = 1024
    encoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_layers: int = 12
    decoder_ffn_dim: int = 4096
    decoder_attention_heads: int = 16
    max_position_embeddings: Positions = 1024
    activation_function: Activation = "relu"
    scale_embedding: bool = True
    tie_word_embeddings: bool = True
    share_encoder_decoder_embeddings: bool = True
    pad_token_id: int = 1
    eos_token_id: int = 2
    decoder_start_token_id: int = 2  # -1: unknown
    langs: tuple[str, str] = ("en", "de")
    tokenizer_class: str = ""


def read_settings(folder: Folder, **defaults: Any) -> StackSettings:
    """The settings of a folder's model, with a family's own defaults."""
    given = {name: folder.config.get(name) for name in StackSettings.__struct_fields__}
    known = {**defaults, **{name: value for name, value in given.items() if value is not None}}
    return convert(known, StackSettings, source=str(folder.path / CONFIG))


def check_fairseq_order(config: StackSettings, folder: Folder, *, any_start: bool = False) -> None:
    """Refuses a model that numbers padding and end otherwise than our dictionaries, or starts with another token."""
    order = {"pad_token_id": 1, "eos_token_id": 2, **({} if any_start else {"decoder_start_token_id": 2})}
    for name, expected in order.items():
        if (found := getattr(config, name)) not in (expected, -1):
            raise folder.wrong(name, found, str(expected))


def checkpoint(
    arch: str, weights: dict[str, Tensor], config: StackSettings, *, connection: str, learned: bool, **others: Any
) -> Checkpoint:
    """The checkpoint of weights under our names.

    :param learned: whether positions are learned.
    :param others: settings of ours that config.json doesn't determine.
    """
    sides = {
        f"{side}_{ours}": value
        for side in ("encoder", "decoder")
        for ours, value in {
            "embed_dim": config.d_model,
            "ffn_embed_dim": getattr(config, f"{side}_ffn_dim"),
            "attention_heads": getattr(config, f"{side}_attention_heads"),
            "layers": getattr(config, f"{side}_layers"),
            "connection": connection,
            "learned_pos": learned,
        }.items()
    }
    settings = {
        **sides,
        "activation_fn": ACTIVATIONS[config.activation_function],
        "no_scale_embedding": not config.scale_embedding,
        "max_source_positions": config.max_position_embeddings,
        "max_target_positions": config.max_position_embeddings,
        **others,
    }
    return Checkpoint(model=weights, config={"task": "translation", "arch": arch, "model": settings})


def stack_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The layers' weights under our names."""
    layers = {name: each for name, each in weights.items() if not _APART.fullmatch(name)}
    return from_stock({name.removeprefix("model."): each for name, each in layers.items()})


def find_table(weights: Mapping[str, Tensor], names: Sequence[str], folder: Folder) -> Tensor:
    """The embedding (tokens, features) that the weights have under the first possible name."""
    for name in names:
        if name in weights:
            return weights[name]
    raise folder.error(f"the weights have no {names[0]}", expected="the weights of a translation model")


class Tables(NamedTuple):
    """The embeddings and the output projection of a model: (tokens, features) each."""

    source: Tensor
    target: Tensor
    output: Tensor

    def weights(self) -> dict[str, Tensor]:
        """Under our names."""
        return {
            "encoder.embed_tokens.weight": self.source,
            "decoder.embed_tokens.weight": self.target,
            "decoder.output_projection.weight": self.output,
        }

    def settings(self) -> dict[str, bool]:
        """Which of them are one."""
        tied = self.output is self.target
        return {"share_all_embeddings": tied and self.source is self.target, "share_decoder_input_output_embed": tied}


def shared_tables(weights: Mapping[str, Tensor], config: StackSettings, folder: Folder) -> Tables:
    """The tables of a model whose two sides have one vocabulary."""
    if config.tie_word_embeddings:
        table = find_table(weights, TIED, folder)
        return Tables(table, table, table)
    source, target = (find_table(weights, (side, SHARED), folder) for side in SIDES)
    return Tables(source, target, weights.get(OUTPUT, target))


FIRST = {BOS: 0, PAD: 1, EOS: 2, UNK: 3}
TOKENIZER, SPECIAL, ADDED, ALL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.json",
)


def read_optional(folder: Folder, name: str) -> dict[str, Any]:
    """The content of a JSON file; empty if the folder doesn't have it."""
    return folder.read_object(name) if folder.has(name) else {}


def numbered_tokens(folder: Folder, content: Mapping[str, Any]) -> dict[str, int]:
    """The tokens whose numbers the tokenizer's files give, except those of its vocabulary.

    :param content: of tokenizer.json.
    """
    sources = {name: str(folder.path / name) for name in (ALL, ADDED, TOKENIZER)}
    of_all = convert(_listed(content), list[dict[str, Any]], name="added_tokens", source=sources[ALL])
    of_config = convert(_decoder(folder), dict[str, Any], name="added_tokens_decoder", source=sources[TOKENIZER])
    entries = [
        *((ALL, each.get("id"), each) for each in of_all),
        *((ADDED, *each[::-1]) for each in token_numbers(read_optional(folder, ADDED), source=sources[ADDED]).items()),
        *((TOKENIZER, int(key), each) for key, each in of_config.items() if key.isdecimal() and len(key) < 10),
    ]
    found: dict[str, int] = {}
    for name, number, entry in entries:
        token = _text(entry)
        if token is not None and isinstance(number, int) and found.setdefault(token, number) != number:
            problem = f"gives {token} the number {number:,}, but another entry {found[token]:,}"
            raise folder.error(problem, file=name, advice="give the files of one model")
    return found


def added_tokens(
    folder: Folder, content: Mapping[str, Any], tokens: Iterable[str], *, fast: bool, drops_spaces: bool
) -> tuple[AddedToken, ...]:
    """How text is split at these tokens, which the tokenizer's files add to its vocabulary.

    :param content: of tokenizer.json.
    :param fast: the tokenizer is one of Hugging Face's tokenizers, which differ from those in Python.
    :param drops_spaces: the tokenizer drops spaces next to the tokens, whatever their flags say.
    """
    entries = [*_decoder(folder).values(), *_listed(content)]
    flags = {text: entry for entry in entries if isinstance(entry, Mapping) and (text := _text(entry)) is not None}
    found = []
    for token in filter(None, tokens):
        has = flags.get(token, {}).get
        special = bool(has("special"))
        found.append(
            AddedToken(
                content=token,
                lstrip=drops_spaces or bool(has("lstrip")),
                rstrip=drops_spaces or bool(has("rstrip")),
                single_word=bool(has("single_word")) and (fast or "spaces"),
                normalized=fast and bool(has("normalized", not special)),
                special=special,
            )
        )
    return tuple(found)


def refuse_added(tokens: Collection[str], reason: str, folder: Folder) -> None:
    """Refuses a model with tokens that were added to its vocabulary."""
    if tokens:
        listed = f"{len(tokens)} added token{'s' * (len(tokens) > 1)} ({first_names(tokens, listed='its tokenizer')})"
        raise folder.error(f"has {listed}, which rskip can't read {reason}")


def listed_tokens(folder: Folder) -> list[str]:
    """The further special tokens that the tokenizer's files list, in order, without their numbers."""
    found: dict[str, None] = {}
    for name in (SPECIAL, TOKENIZER):
        content = read_optional(folder, name)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            given = content.get(key) or []
            items = given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else []
            found |= dict.fromkeys(text for item in items if (text := _text(item)) is not None)
    return list(found)


def token_numbers(content: Any, *, name: str = "", source: str = "") -> dict[str, int]:
    """The content of a vocabulary's file, in which every token has a number."""
    if isinstance(content, dict) and all(type(number) is int for number in content.values()):
        return content  # `convert` takes seconds for hundreds of thousands of tokens
    return convert(content, dict[str, int], name=name, source=source)


def dictionary_of(rows: Mapping[str, int], size: int, *, source: str) -> Dictionary:
    """The dictionary of tokens in fairseq's order, for an embedding of so many rows.

    Rows without a token get one that no text has.

    :param rows: the number of each token.
    :param source: where the tokens are from, for errors.
    """
    last, special = max(rows.values()), {token: rows.get(token) for token in FIRST}
    if special != FIRST or min(rows.values()) < 0 or not size - MOST_UNNAMED <= last + 1 <= size:
        problem = f"the tokenizer numbers its tokens up to {last:,}, with {special}"
        expected = f"numbers for the {size:,} rows of the embedding, with {FIRST}"
        raise SettingError("", problem, expected=expected, advice="give the files of one model", source=source)
    tokens = {number: token for token, number in rows.items()}
    unnamed = (name for number in count() if (name := f"madeupword{number:04}") not in rows)
    fit = {number: token for number, token in tokens.items() if token and "\n" not in token}  # for a dictionary's file
    return Dictionary(fit.get(row) or next(unnamed) for row in range(len(FIRST), size))


def _listed(content: Mapping[str, Any]) -> Any:
    return content.get("added_tokens") or []


def _decoder(folder: Folder) -> Any:
    return read_optional(folder, TOKENIZER).get("added_tokens_decoder") or {}


def _text(token: Any) -> str | None:
    """The text of a token, which is a string or an object with its content."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None
