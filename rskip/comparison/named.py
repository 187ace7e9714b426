"""The subject of `rskip compare MODEL --data PATH`."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from rskip.comparison.batches import Data, Images, OwnBatches, Text
from rskip.comparison.models import EXPECTED, build_named, config_of, load_function, transformers_folder
from rskip.comparison.options import ModelOptions, Options
from rskip.comparison.plan import measure, read_plan
from rskip.comparison.subjects import AdaptedModel, Loss, ShapedModel, Subject, as_written, model_loss, next_token_loss
from rskip.files.checksum import sha256_file
from rskip.language_modeling.data import TextData, load_data
from rskip.language_modeling.preparation import TextOptions, prepare_text, read_parts
from rskip.language_modeling.settings import TrainingSettings
from rskip.machine.ranks import Ranks
from rskip.settings.check import to_plain
from rskip.settings.errors import SettingError
from rskip.vision.labelled_files import kind_of_images
from rskip.vision.own_images import load_own_images
from rskip.vision.settings import TrainingSettings as ImageSettings

_SHAPES = ("gpt2", "llama")
# layers and features; the largest is chosen with which each run has ENOUGH updates in the time
_SIZES = ((2, 64), (4, 128), (6, 192), (8, 256), (12, 384), (12, 768))
_ENOUGH = 1000
_PER_HEAD = 32
_SEQUENCES, _IMAGES = 12, 64  # per update


def named_subject(
    model: str,
    data: str,
    options: ModelOptions,
    *,
    output: Path,
    baseline: str | None,
    time: Options,
    connections: int,
    device: str | None,
) -> Subject:
    """The model and the data that these names mean.

    :param model: gpt2, llama, or see `rskip.comparison.models.EXPECTED`.
    :param data: a text, a folder from `rskip prepare`, images, or MODULE:FUNCTION.
    :param output: the comparison's folder, where a text is prepared.
    :param connections: how many are compared with the baseline; this and `time` decide the size of a gpt2 or llama.
    :raises SettingError: likewise OSError: no such model or data, or they don't fit.
    """
    baseline = None if baseline is None else as_written(baseline)
    if model in _SHAPES:
        text = _prepared(data, output)
        shaped = ShapedModel(data=text, size=_size(model, text, options, output, time, connections, device))
        return shaped if baseline is None else replace(shaped, baseline=baseline)
    if sized := [name for name in ("layers", "features", "heads") if getattr(options, name) is not None]:
        raise SettingError(sized[0], "is given", expected=f"it for {' or '.join(_SHAPES)} only", advice="leave it out")
    folder = transformers_folder(model)
    if folder is None and ":" not in model:
        raise SettingError.of_value("model", model, f"{', '.join(_SHAPES)}, {EXPECTED}")
    content: Data = _data(data, options, output) if folder is None else _text_of(folder, data, options)
    if model.startswith("timm:") and isinstance(content, Text):
        raise SettingError("data", f"is {data}, a text", expected="images, for a model of timm")
    loss: Loss = model_loss if folder is None else next_token_loss
    if options.loss is not None:
        loss = load_function("loss", options.loss)
    subject = AdaptedModel(
        name=f"{model}, {Path(data).name}",
        build=partial(build_named, model, **content.sizes),
        data=content,
        loss=loss,
        blocks=options.blocks,
        precision=options.precision,
    )
    return subject if baseline is None else replace(subject, baseline=baseline)


def _prepared(data: str, output: Path) -> TextData:
    """A prepared text; a text file is prepared as characters in the comparison's folder."""
    if Path(data).is_dir():
        return load_data(data)
    try:
        prepare_text(Path(data), output / "data")
    except SettingError as error:
        if not error.instead:
            raise
        raise SettingError("output", error.problem, advice="the text has changed: choose another folder") from None
    return load_data(output / "data")


def _size(
    shape: str, text: TextData, options: ModelOptions, output: Path, time: Options, connections: int,
    device: str | None,
) -> TrainingSettings:  # fmt: skip
    """The size of a gpt2 or llama: as given, as in the folder's comparison, or the largest that the time allows."""
    if (output / "plan.json").exists():
        identity = read_plan(output).identity
        known = {name: identity.get(name) for name in ("layers", "features", "heads")}
    else:
        known = {}

    def settings(layers: int, features: int) -> TrainingSettings:
        return TrainingSettings(
            shape=shape,  # type: ignore[arg-type]
            layers=layers,
            features=features,
            heads=options.heads or known.get("heads") or max(1, features // _PER_HEAD),
            context=options.context,
            batch_size=options.batch_size or _SEQUENCES,
            precision=options.precision,
        )

    layers, features = options.layers or known.get("layers"), options.features or known.get("features")
    if (layers and features) or time.updates is not None:  # then the time limits nothing
        return settings(layers or _SIZES[1][0], features or _SIZES[1][1])
    runs = (connections + 1) * (time.seeds + 2) + time.seeds  # with pilots, and longer runs of the baseline
    chosen = settings(layers or _SIZES[0][0], features or _SIZES[0][1])
    for candidate in _SIZES[1:]:
        larger = settings(layers or candidate[0], features or candidate[1])
        if Ranks.from_environment().first:
            print(f"trying {larger.layers} layers, {larger.features} features: ", end="")
        subject = ShapedModel(data=text, size=larger)
        found, _ = measure(subject, [subject.baseline], rate=1e-3, device=device)
        if 1.5 * runs * _ENOUGH * found[subject.baseline].seconds > 60 * time.minutes:  # the others are slower
            break
        chosen = larger
    if Ranks.from_environment().first:
        print(f"size for {time.minutes:g} minutes: {chosen.layers} layers, {chosen.features} features", flush=True)
    return chosen


def _data(data: str, options: ModelOptions, output: Path) -> Data:
    """A text as characters, images, or batches of a function."""
    path = Path(data)
    if not path.exists() and ":" in data:
        batches = load_function("data", data)()
        pair = isinstance(batches, tuple) and len(batches) == 2
        return OwnBatches.of(*batches) if pair else OwnBatches.of(batches)
    if not path.exists():
        expected = "a text, a folder from `rskip prepare`, images, or MODULE:FUNCTION"
        raise FileNotFoundError(f"--data {data}: no such file or folder: expected {expected}")
    if path.suffix == ".npz" or (path.is_dir() and kind_of_images(path) == "own"):
        settings = ImageSettings(dataset="images", data=data, size=options.image_size, epochs=1)
        images = load_own_images(settings)
        return Images(
            train=images.train,
            valid=images.held_out,
            size=images.description.size,
            batch_size=options.batch_size or _IMAGES,
            sha256=str(to_plain(images.description)["sha256"]),
        )
    text = _prepared(data, output)
    return Text(
        tokens=text.splits, vocab_size=len(text.tokens.dictionary), context=options.context,
        batch_size=options.batch_size or _SEQUENCES, sha256=str(text.described["files_sha256"]),
    )  # fmt: skip


def _text_of(folder: str, data: str, options: ModelOptions) -> Text:
    """A text in the tokens of a Hugging Face folder; as characters if it has no tokenizer."""
    if not Path(data).is_file():
        raise FileNotFoundError(f"--data {data}: no such file: expected a text in UTF-8")
    parts = read_parts(Path(data), valid_share=TextOptions().valid_share)
    config = config_of(folder)
    masked = "MaskedLM" in str(config.architectures)
    try:
        tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError):
        tokenizer = None
    if tokenizer is None or not tokenizer(parts["train"][:1000], add_special_tokens=False)["input_ids"]:
        numbers = {character: number for number, character in enumerate(sorted({*parts["train"], *parts["valid"]}))}
        tokens = {name: torch.tensor([numbers[each] for each in part]) for name, part in parts.items()}
        size, mask = len(numbers) + masked, len(numbers)
        print(f"{folder} has no tokenizer: the tokens are {len(numbers)} characters", flush=True)
    else:
        tokens = {
            name: torch.tensor(tokenizer(part, add_special_tokens=False)["input_ids"]) for name, part in parts.items()
        }
        size, mask = max(config.vocab_size, len(tokenizer)), tokenizer.mask_token_id
        if masked and mask is None:
            raise SettingError("model", f"{folder} predicts masked tokens, but its tokenizer has no mask token")
    longest = getattr(config, "max_position_embeddings", None) or options.context
    return Text(
        tokens=tokens, vocab_size=size, context=min(options.context, longest), sha256=sha256_file(Path(data)),
        batch_size=options.batch_size or _SEQUENCES, masked=mask if masked else None,
    )  # fmt: skip
