"""`--task rskip_translation` gives what fairseq's own task does, in its own format."""

from __future__ import annotations

import gzip
import re
from argparse import Namespace
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.checkpoint import build_transformer, read_checkpoint, write_checkpoint
from rskip.checkpoint.stock import stock_checkpoint
from rskip.cpu.linear import largest_int8_weight
from rskip.text import TextPipeline

tasks = pytest.importorskip("fairseq.tasks", reason="needs fairseq: run `rskip setup-fairseq`")

SENTENCES = 6
OURS, RSKIP, STOCK = "1xskip_ln.pt", "2rskip_ln.pt", "stock.pt"
SHORT = ["--max-len-a", "1.2", "--max-len-b", "10"]
PAD, END = 1, 2
Hypotheses = list[list[dict[str, Any]]]


@pytest.fixture(scope="module")
def multi30k(root, shared, tmp_path_factory, fairseq_program) -> Path:
    """A folder with the committed models as fairseq's files, one of them as a stock `transformer` too, and in `bin`
    the first test sentences and an empty one."""
    folder = tmp_path_factory.mktemp("multi30k")
    weights = root / "checkpoints/multi30k_en_de"
    for name in (OURS, RSKIP):
        write_checkpoint(folder / name, read_checkpoint(weights / name.removesuffix(".pt") / "model.safetensors"))
    checkpoint = read_checkpoint(folder / OURS)
    vocabulary = len(checkpoint.model["encoder.embed_tokens.weight"])
    model = build_transformer(checkpoint, source_vocabulary=vocabulary, target_vocabulary=vocabulary)
    write_checkpoint(folder / STOCK, stock_checkpoint(model, source_language="en", target_language="de"))
    weights = weights / OURS.removesuffix(".pt")
    pipeline = TextPipeline.load(weights / "text")
    for language, encode in (("en", pipeline.encode), ("de", pipeline.encode_target)):
        with gzip.open(shared / f"data/multi30k/test_2016_flickr.{language}.gz", "rt", encoding="utf-8") as file:
            lines = [encode(line.rstrip("\n")) for line, _ in zip(file, range(SENTENCES), strict=False)]
        (folder / f"test.{language}").write_text("\n".join([*lines, ""]) + "\n", encoding="utf-8")
    process = fairseq_program(
        "fairseq-preprocess", "--source-lang", "en", "--target-lang", "de", "--testpref", "test", "--destdir", "bin",
        "--srcdict", str(weights / "dict.en.txt"), "--tgtdict", str(weights / "dict.de.txt"), folder=folder,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return folder


def assert_same_lines(ours: list[str], theirs: list[str]) -> None:
    """Numbers are the same to 1e-4 (and what rounding to four digits adds), everything else exactly."""
    assert len(ours) == len(theirs)
    number = re.compile(r"-?\d+\.\d+")
    for one, other in zip(ours, theirs, strict=True):
        assert number.sub("#", one) == number.sub("#", other)
        expected = [float(each) for each in number.findall(other)]
        assert [float(each) for each in number.findall(one)] == pytest.approx(expected, abs=2.1e-4), one


def assert_same(ours: Hypotheses, theirs: Hypotheses, count: int | None = None) -> None:
    """The best `count` hypotheses of each sentence are the same, all of them where it is None."""
    for one, other in zip(ours, theirs, strict=True):
        for mine, their in zip(one[:count], other[:count], strict=True):
            assert mine["tokens"].tolist() == their["tokens"].tolist()
            assert mine["score"].item() == pytest.approx(their["score"].item(), abs=1e-4)
            torch.testing.assert_close(mine["positional_scores"], their["positional_scores"], rtol=0, atol=1e-4)


@pytest.fixture
def translate(multi30k) -> Callable[..., Hypotheses]:
    """A task's hypotheses for the sentences in one batch, with settings of fairseq's generation."""

    def translate(
        name: str, paths: str, *, prefix: int = 0, prepare: bool = True, change: Callable = lambda model: None,
        empty: bool = False, precision: str | None = None, **settings: Any,
    ) -> Hypotheses:  # fmt: skip
        task, models = load(multi30k, name, paths, **({"precision": precision} if precision else {}))
        for model in models:
            if prepare:
                model.prepare_for_inference_(Namespace(generation=Namespace(**settings)))
        generator = task.build_generator(models, Namespace(**settings))
        for model in models:
            change(model)
        sample = batch(multi30k, task, empty=empty)
        first = sample["target"][:, :prefix] if prefix else None
        return task.inference_step(generator, models, sample, prefix_tokens=first)

    return translate


def load(multi30k: Path, name: str, paths: str, **settings: str) -> tuple[Any, list[Any]]:
    import rskip.fairseq_plugin  # noqa: F401

    return setup(multi30k, name, **settings), [deepcopy(load_model(multi30k, path)) for path in paths.split(":")]


@cache
def setup(multi30k: Path, name: str, **settings: str) -> Any:
    configuration = tasks.TASK_DATACLASS_REGISTRY[name](
        data=str(multi30k / "bin"), source_lang="en", target_lang="de", **settings
    )
    return tasks.TASK_REGISTRY[name].setup_task(configuration)


@cache
def load_model(multi30k: Path, path: str) -> Any:
    from fairseq.checkpoint_utils import load_model_ensemble

    return load_model_ensemble([str(multi30k / path)], task=setup(multi30k, "translation"))[0][0]


def batch(multi30k: Path, task: Any, *, empty: bool) -> dict[str, Any]:
    """All sentences, without the empty one unless it is wanted."""
    from fairseq.data import LanguagePairDataset

    columns = []
    for language, dictionary in (("en", task.source_dictionary), ("de", task.target_dictionary)):
        lines = (multi30k / f"test.{language}").read_text(encoding="utf-8").splitlines()
        lines = lines if empty else lines[:-1]
        columns.append([dictionary.encode_line(line, add_if_not_exist=False).long() for line in lines])
    sizes = [[len(each) for each in column] for column in columns]
    dataset = LanguagePairDataset(
        columns[0], sizes[0], task.source_dictionary, columns[1], sizes[1], task.target_dictionary
    )
    return dataset.collater([dataset[index] for index in range(len(dataset))])


def test_gnmts_length_penalty_scores_and_ranks(multi30k):
    task, models = load(multi30k, "rskip_translation", RSKIP, length_penalty_kind="gnmt")
    generator = task.build_generator(models, Namespace(beam=4, lenpen=0.6, max_len_a=1.2, max_len_b=10))
    for hypotheses in task.inference_step(generator, models, batch(multi30k, task, empty=False)):
        expected = [
            (each["positional_scores"].sum() / ((5 + len(each["tokens"])) / 6) ** 0.6).item() for each in hypotheses
        ]
        assert [each["score"].item() for each in hypotheses] == pytest.approx(expected, abs=1e-5)
        assert expected == sorted(expected, reverse=True)


def test_fairseq_generate_prints_the_same_lines(generate, multi30k):
    flags = [str(multi30k / STOCK), *SHORT, "--nbest", "2", "--lenpen", "0.6", "--print-alignment", "--sacrebleu"]
    ours = generate("rskip_translation", multi30k / "bin", *flags)
    assert {line[0] for line in ours} >= set("STHDPAG")
    assert_same_lines(ours, generate("translation", multi30k / "bin", *flags))


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 8, "lenpen": 0.6, "prefix": 3},
        pytest.param({"path": f"{STOCK}:{RSKIP}:{OURS}", "temperature": 1.4, "empty": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_same_hypotheses(translate, settings):
    settings = {"path": STOCK, "beam": 5, "max_len_a": 1.2, "max_len_b": 10, **settings}
    path = settings.pop("path")
    ours = translate("rskip_translation", path, **settings)
    assert_same(ours, translate("translation", path, **settings))


def test_settings_of_the_search():
    """What each of fairseq's settings is of ours; tests/generation has what the search makes of them."""
    from rskip.fairseq_plugin.task import search_options
    from rskip.generation import SearchOptions

    fairseqs = SearchOptions(beam=5, length_penalty=1.0, min_length=1, max_length_a=0, max_length_b=200)
    for given, ours in [
        ({}, {}),
        ({"beam": 1}, {"beam": 1}),
        ({"lenpen": 0.6}, {"length_penalty": 0.6}),
        ({"lenpen": 0.6, "unnormalized": True}, {"length_penalty": 0.0}),
        ({"min_len": 14}, {"min_length": 14}),
        ({"max_len_a": 0.3, "max_len_b": 2}, {"max_length_a": 0.3, "max_length_b": 2}),
        ({"unkpen": 3.0, "temperature": 1.5}, {"unknown_penalty": 3.0, "temperature": 1.5}),
        ({"no_repeat_ngram_size": 3}, {"no_repeat_ngram": 3}),
        ({"sampling": True, "sampling_topk": 10}, {"sampling": True, "top_k": 10}),
        ({"sampling": True, "sampling_topp": 0.9}, {"sampling": True, "top_p": 0.9}),
        ({"sampling": True, "sampling_topp": 0.9, "sampling_topk": 10}, {"sampling": True, "top_p": 0.9}),
        ({"sampling": True, "sampling_topp": 1.5}, {"sampling": True}),
    ]:
        assert search_options(Namespace(**given)) == replace(fairseqs, **ours), given


def test_greatest_length_is_the_models(translate):
    """fairseq bounds hypotheses by the decoder's positions, here 7 tokens and the end."""

    def shorten(model: Any) -> None:
        model.max_decoder_positions = lambda: 8

    ours = translate("rskip_translation", RSKIP, change=shorten)
    assert max(len(each[0]["tokens"]) for each in ours) == 8
    assert_same(ours, translate("rskip_translation", RSKIP, max_len_b=7))


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_alignments(translate, kind):
    settings = {"beam": 3, "print_alignment": kind, **dict(max_len_a=1.2, max_len_b=10)}
    ours, theirs = (translate(task, STOCK, **settings) for task in ("rskip_translation", "translation"))
    assert_same(ours, theirs)
    for one, other in zip(ours, theirs, strict=True):
        for mine, their in zip(one, other, strict=True):
            torch.testing.assert_close(mine["attention"], their["attention"], rtol=0, atol=1e-4)
            pairs = [[[float(value) for value in pair] for pair in each["alignment"]] for each in (mine, their)]
            assert len(pairs[0]) == len(mine["tokens"]) - (kind == "hard")
            torch.testing.assert_close(*(torch.tensor(each) for each in pairs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"lenpen": 0.6, "prefix": 1, "print_alignment": "hard"}], ids=str)
def test_hypotheses_as_long_as_their_sources(translate, settings):
    """Beside the best one, fairseq gives hypotheses of any length, with the score -inf."""
    settings = {"beam": 4, "match_source_len": True, "empty": not settings, **settings}
    ours, theirs = (translate(task, RSKIP, **settings) for task in ("rskip_translation", "translation"))
    assert_same(ours, theirs, count=1)
    for one, other in zip(ours, theirs, strict=True):
        lengths = {len(each["tokens"]) for each in one}
        assert lengths == {len(other[0]["tokens"])}
        scores = [each["score"].item() for each in one]
        assert scores == sorted(scores, reverse=True)


def mean_difference(found: Hypotheses, exact: Hypotheses) -> float:
    """Between the scores of the best hypotheses."""
    scores = [torch.stack([each[0]["score"] for each in hypotheses]) for hypotheses in (found, exact)]
    return (scores[0] - scores[1]).abs().mean().item()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_precision(translate, precision):
    settings = {"beam": 3, "max_len_a": 1.2, "max_len_b": 10}
    if precision == "int8" and not largest_int8_weight():
        from fairseq_compat.one_line_errors import UsageError

        with pytest.raises(UsageError, match=r"no exact 8-bit products: use float32 or bfloat16"):
            translate("rskip_translation", RSKIP, precision=precision, **settings)
        return
    found, exact = (translate("rskip_translation", RSKIP, precision=each, **settings) for each in (precision, None))
    assert 0 < mean_difference(found, exact) < 0.1


def test_refusals(translate):
    from fairseq_compat.one_line_errors import UsageError

    for settings, message in [
        ({"constraints": "ordered"}, "--constraints is not supported by --task rskip_translation"),
        ({"retain_dropout": True}, "--retain-dropout is not supported"),
        ({"beam": 0}, "--beam is 0: expected a whole number, 1 or more"),
        ({"sampling_topk": 3}, "--sampling-topk is 3: expected 0 without sampling"),
        ({"min_len": 9, "max_len_a": 0.1, "max_len_b": 1}, "expected at least --min-len 9"),
        ({"sampling": True, "match_source_len": True}, "--sampling and --match-source-len"),
    ]:
        with pytest.raises(UsageError, match=re.escape(message)):
            translate("rskip_translation", STOCK, prepare=False, **settings)


def test_extensions_of_fairseqs_generator_are_refused(multi30k):
    from fairseq_compat.one_line_errors import UsageError

    task, models = load(multi30k, "rskip_translation", STOCK)
    more = {"lm_model": None, "lm_weight": 0.0, "tokens_to_suppress": ("a",)}
    for name, extra in {
        "seq_gen_cls": {"seq_gen_cls": object},
        "prefix_allowed_tokens_fn": {"prefix_allowed_tokens_fn": lambda sentence, tokens: [END]},
        "tokens_to_suppress": {"extra_gen_cls_kwargs": more},
    }.items():
        with pytest.raises(UsageError, match=f"{name} is not supported"):
            task.build_generator(models, Namespace(), **extra)


def test_other_models_are_refused(multi30k, task):
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    from fairseq_compat.one_line_errors import UsageError

    ours, _ = load(multi30k, "rskip_translation", STOCK)

    def build(architecture: str, **settings: Any) -> Any:
        args = Namespace(**settings)
        ARCH_CONFIG_REGISTRY[architecture](args)
        return ARCH_MODEL_REGISTRY[architecture].build_model(args, task)

    with pytest.raises(UsageError, match="not a LSTMModel: use --task translation"):
        ours.build_generator([build("lstm", criterion="")], Namespace())
    adaptive = build("transformer_tiny", adaptive_softmax_cutoff="5,10")
    with pytest.raises(UsageError, match="adaptive_softmax_cutoff"):
        ours.build_generator([adaptive], Namespace())


def test_data_of_another_dictionary_are_refused(translate, monkeypatch):
    """A damaged .bin file may hold a token beyond the vocabulary. It must not read memory outside the tables."""
    from fairseq_compat.one_line_errors import UsageError
    from rskip.fairseq_plugin.generator import BeamSearchGenerator

    search = BeamSearchGenerator._search
    monkeypatch.setattr(
        BeamSearchGenerator, "_search", lambda self, source, *others: search(self, source + 60_000, *others)
    )
    with pytest.raises(UsageError, match="the dictionary lacks a token in the data .*binarise the data again"):
        translate("rskip_translation", RSKIP)


def test_hub_interface(multi30k):
    from rskip.fairseq_plugin.model import ConnectionTransformer as Model

    ours, theirs = (
        Model.from_pretrained(str(multi30k), RSKIP, str(multi30k / "bin"), cpu=True, user_dir="rskip", task=name)
        for name in ("rskip_translation", "translation")
    )
    sentences = ["Two dogs run .", "A man in a hat is singing ."]
    assert ours.translate(sentences, beam=3) == theirs.translate(sentences, beam=3)
    encoded = [ours.binarize(sentence) for sentence in sentences]
    assert_same(ours.generate(encoded, beam=3, lenpen=0.6), theirs.generate(encoded, beam=3, lenpen=0.6))
