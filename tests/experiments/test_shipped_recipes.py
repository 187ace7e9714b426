"""Every recipe of translation: it loads, says what a recipe says, is what its name says; fairseq takes its flags."""

from __future__ import annotations

import gzip
import re
import subprocess
from argparse import Namespace
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from rskip.experiments.commands import average_command, generate_command, train_command
from rskip.experiments.tokens_per_update import KEY

from rskip.corpora import find_corpus
from rskip.experiments.recipe import Recipe, load_recipe

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path for path in (ROOT / "recipes").glob("*.yaml") if not path.stem.startswith("cifar"))

# What the papers say, typed from their tables: recipe -> dropout, tokens an update, updates, the published BLEU.
EN_VI = {
    "base_1xskip": (0.1, [28.98]),
    "base_1xskip_ln": (0.1, [30.31, 30.9]),
    "base_2xskip_ln": (0.1, [30.99]),
    "base_3xskip_ln": (0.1, [30.92]),
    "base_2rskip_ln": (0.1, [31.45]),
    "base_3rskip_ln": (0.1, [31.10]),
    "base_sas": (0.1, [32.0]),
    "2layer_1xskip_ln": (0.1, [30.04]),
    "2layer_2rskip_ln": (0.1, [30.49]),
    "big_1xskip_ln": (0.3, [31.4, 31.6]),
    "big_2rskip_ln": (0.3, [32.2]),
    "big_sas": (0.3, [32.2]),
}
WMT = {
    "de_base_1xskip_ln": (0.1, 16384, 550_000, [27.9]),
    "de_base_2rskip_ln": (0.1, 16384, 550_000, [28.6]),
    "de_base_sas": (0.1, 25000, 100_000, [27.6]),
    "de_big_1xskip_ln": (0.3, 16384, 550_000, [28.5]),
    "de_big_2rskip_ln": (0.3, 16384, 550_000, [29.0]),
    "de_big_sas": (0.3, 25000, 300_000, [28.7]),
    "fr_base_1xskip_ln": (0.1, 16384, 550_000, [38.2]),
    "fr_base_2rskip_ln": (0.1, 16384, 550_000, [39.0]),
    "fr_base_sas": (0.1, 25000, 100_000, [38.4]),
    "fr_big_1xskip_ln": (0.1, 16384, 550_000, [41.0]),
    "fr_big_2rskip_ln": (0.1, 16384, 550_000, [41.6]),
    "fr_big_sas": (0.1, 25000, 300_000, [41.3]),
}
PAPERS = {
    **{f"iwslt15_en_vi_{name}": (dropout, 4096, 100_000, bleu) for name, (dropout, bleu) in EN_VI.items()},
    **{f"wmt14_en_{name}": values for name, values in WMT.items()},
}
# features, features inside the feed-forward branch, heads, layers of each stack
SIZES = {"base": (512, 2048, 8, 6), "big": (1024, 4096, 16, 6), "2layer": (512, 2048, 8, 2)}
GPUS = (1, 2, 3, 4, 8)


def spec_of(name: str) -> str:
    """The connection that a recipe's name ends in, as a spec: `..._2rskip_ln` -> `2rskip+ln`."""
    match = re.search(r"_(\d[xr]skip(_ln)?|sas)$", name)
    assert match, name
    return match[1].replace("_", "+")


def parse_training(recipe: Recipe, *, gpus: int) -> Namespace:
    """The recipe's training command as fairseq-train's own parser reads it."""
    options = pytest.importorskip("fairseq.options")
    data = Path("data-bin")
    command = train_command(recipe.settings, data=data, checkpoints=Path("checkpoints"), seed=1, gpus=gpus)
    return options.parse_args_and_arch(options.get_training_parser(), command[command.index(str(data)) :])


def test_there_are_recipes() -> None:
    assert {path.stem for path in RECIPES} == {
        "numbers_en_de_demo",
        *(f"multi30k_en_de_{name}" for name in ("1xskip_ln", "2xskip_ln", "2rskip_ln", "sas")),
        "multi30k_en_fr_2rskip_ln",
        *PAPERS,
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_states_its_command_and_what_to_expect(path: Path) -> None:
    recipe = load_recipe(path)
    header = re.match(r"(#.*\n)+", path.read_text())
    assert header, "begins with a comment"
    assert f"#   rskip run recipes/{path.name}" in header[0]
    assert recipe.description
    if recipe.paper:
        assert "this recipe has not been run to its end. Time: not measured." in header[0]
        assert not recipe.expected.metrics and recipe.expected.minutes is None, "nothing was measured"
        (line,) = re.findall(r"^# Paper: .*$", header[0], re.MULTILINE)
        figures = [float(number) for number in re.findall(r"\b\d\d\.\d+", line)]
        assert figures == [each.bleu for each in recipe.paper]
        assert all(re.search(rf"{paper} Tables? ", line) for paper, _, _ in (p.table.split() for p in recipe.paper))
        return
    assert "Expected:" in header[0]
    assert recipe.expected.metrics and recipe.expected.minutes and recipe.expected.machine
    for value in recipe.expected.metrics.values():
        assert re.search(rf"\b{value:g}\b", header[0]), f"the header names another figure than {value}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_fairseq_takes_a_recipes_flags(path: Path) -> None:
    options = pytest.importorskip("fairseq.options")
    recipe = load_recipe(path)
    args = parse_training(recipe, gpus=0)
    for flag, value in recipe.settings.train.items():
        if flag == KEY or (flag == "max-tokens" and KEY in recipe.settings.train):
            continue
        parsed = getattr(args, flag.replace("-", "_"))
        parsed = parsed[0] if isinstance(parsed, list) else parsed
        assert str(parsed) == str(value), flag
    data, checkpoint = Path("data-bin"), Path("averaged.pt")
    generate = generate_command(recipe.settings, data=data, checkpoint=checkpoint, gpu=False)
    args = options.parse_args_and_arch(options.get_generation_parser(), generate[1:])
    for flag, value in recipe.settings.generate.items():
        assert str(getattr(args, flag.replace("-", "_"))) == str(value), flag


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_recipe_is_what_its_name_and_the_paper_say(name: str) -> None:
    recipe = load_recipe(ROOT / "recipes" / f"{name}.yaml")
    dropout, tokens, updates, bleu = PAPERS[name]
    args = parse_training(recipe, gpus=0)
    corpus, size = re.match(r"(iwslt15_en_vi|wmt14_en_..)_([^_]+)", name).groups()
    width, inner, heads, layers = SIZES[size]
    assert recipe.settings.corpus == find_corpus(corpus.replace("_", "-")).name
    assert args.connection == spec_of(name)
    assert not {"encoder-connection", "decoder-connection"} & set(recipe.settings.train)
    for side in ("encoder", "decoder"):
        names = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
        sizes = [getattr(args, f"{side}_{each}") for each in names]
        assert sizes == [width, inner, heads, layers]
    assert (args.dropout, args.label_smoothing, args.share_all_embeddings) == (dropout, 0.1, True)
    assert (args.adam_betas, args.adam_eps, args.clip_norm) == ("(0.9, 0.98)", 1e-9, 0.0)
    assert args.lr == pytest.approx([width**-0.5 * 4000**-0.5], rel=1e-5)
    assert (args.lr_scheduler, args.warmup_updates, args.warmup_init_lr) == ("inverse_sqrt", 4000, -1)
    assert (args.max_update, recipe.settings.train[KEY]) == (updates, tokens)
    assert (recipe.settings.average.last, recipe.settings.averages_by) == (10, "update")
    generate = recipe.settings.generate
    assert (generate["beam"], generate["lenpen"], generate["length-penalty-kind"]) == (4, 0.6, "gnmt")
    assert [each.bleu for each in recipe.paper] == bleu


@pytest.mark.parametrize("gpus", GPUS)
@pytest.mark.parametrize("name", PAPERS)
def test_an_update_has_the_papers_tokens_on_any_number_of_gpus(name: str, gpus: int) -> None:
    recipe = load_recipe(ROOT / "recipes" / f"{name}.yaml")
    tokens = PAPERS[name][1]
    if tokens // gpus < 1024:
        with pytest.raises(ValueError, match="use fewer GPUs"):
            parse_training(recipe, gpus=gpus)
        return
    args = parse_training(recipe, gpus=gpus)
    batches = gpus * args.update_freq[0]
    assert 0 <= tokens - batches * args.max_tokens < batches
    assert 1024 <= args.max_tokens <= 4096


def test_the_multi30k_recipes_differ_in_their_architecture_alone_but_for_sas() -> None:
    recipes = {path.stem: path for path in RECIPES if path.stem.startswith("multi30k_en_de_")}
    configs = [load_recipe(path).config for path in recipes.values()]
    sas = load_recipe(recipes["multi30k_en_de_sas"], overrides=["train.lr=0.004", "train.clip-norm=0.0"]).config
    configs = [sas if config["train"]["arch"] == sas["train"]["arch"] else config for config in configs]
    architectures = {config["train"].pop("arch") for config in configs}
    assert len(architectures) == len(configs)
    assert all(config == configs[0] for config in configs)


def test_a_papers_recipes_differ_only_in_what_their_names_and_the_paper_say() -> None:
    for family in ("iwslt15_en_vi", "wmt14_en_de", "wmt14_en_fr"):
        configs = [load_recipe(path).config for path in RECIPES if path.stem.startswith(family)]
        for config in configs:
            for key in ("arch", "connection", "lr", "dropout", KEY, "max-update"):
                config["train"].pop(key, None)
        assert all(config == configs[0] for config in configs)


def run_script(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / name, *arguments], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("script", "recipe", "family", "run"),
    [
        ("train-iwslt15-en-vi.sh", "2rskip_ln", "iwslt15_en_vi", "base_2rskip_ln"),
        ("train-wmt14-en2de.sh", "big_sas", "wmt14_en_de", "big_sas"),
        ("train-wmt14-en2fr.sh", "base_1xskip_ln", "wmt14_en_fr", "base_1xskip_ln"),
        ("train-multi30k.sh", "sas", "multi30k_en_de", "sas"),
    ],
)
def test_a_script_runs_the_recipe_that_it_is_given(
    script: str, recipe: str, family: str, run: str, tmp_path: Path
) -> None:
    pytest.importorskip("fairseq")
    process = run_script(script, recipe, "--dry-run", "--seeds", "7", folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert f" --save-dir runs/{family}_{run}/7/checkpoints " in process.stdout.splitlines()[1]
    process = run_script(script, folder=tmp_path)
    assert process.returncode == 2 and process.stderr.count("\n") == 1
    names = process.stderr.partition("expected one of ")[2].split()
    shown = [path.stem for path in RECIPES if re.match(family, path.stem)]
    assert [f"{family}_{each}" for each in names] == shown


SENTENCES = 2000
TEXTS = {  # direction: training and validation texts of the shared data, by language
    "en-vi": ("iwslt15-en-vi/subset30k.{}", "iwslt15-en-vi/tst2012.{}"),
    "en-de": ("wmt14/train-sample-a.tok.{}", "wmt14/newstest2013.{}"),
    "en-fr": ("wmt14/newstest2012.{}", "wmt14/newstest2013.{}"),
}
TRAINED = [name for name in PAPERS if "_base_" in name]  # each connection and direction that there is, once
SMALL = [
    *("train.encoder-embed-dim=32", "train.encoder-ffn-embed-dim=64", "train.encoder-attention-heads=2"),
    *("train.decoder-attention-heads=2", "train.encoder-layers=2", "train.decoder-layers=2"),
    *("train.max-update=20", "train.save-interval-updates=10", "average.last=2"),
    *("train.warmup-updates=5", "train.lr=1e-2", f"train.{KEY}=1024", "train.max-tokens=512"),
    *("train.max-source-positions=500", "train.max-target-positions=500"),
]


@pytest.fixture(scope="module")
def binarise(shared: Path, tmp_path_factory: pytest.TempPathFactory, fairseq_program: Callable) -> Callable:
    """Gives the data folder of a direction: the first sentences of its texts, the 1,000 commonest words."""

    @cache
    def binarise(direction: str) -> Path:
        folder = tmp_path_factory.mktemp(direction)
        source, target = direction.split("-")
        for split, text, count in zip(("train", "valid"), TEXTS[direction], (SENTENCES, 100), strict=True):
            for language in (source, target):
                path = shared / "data" / f"{text.format(language)}.gz"
                with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
                    (folder / f"{split}.{language}").write_text("".join(next(lines) for _ in range(count)))
        process = fairseq_program(
            "fairseq-preprocess", "--source-lang", source, "--target-lang", target, "--joined-dictionary",
            "--trainpref", "train", "--validpref", "valid", "--testpref", "valid", "--nwordssrc", "1000",
            "--destdir", "bin", folder=folder,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        return folder / "bin"

    return binarise


@pytest.fixture
def train_20_updates(binarise: Callable[[str], Path], fairseq_program: Callable, tmp_path: Path) -> Callable:
    """Runs a recipe's own training command with small sizes; gives the recipe, its data and its checkpoints."""

    def train_20_updates(name: str) -> tuple[Recipe, Path, Path]:
        recipe = load_recipe(ROOT / "recipes" / f"{name}.yaml", overrides=SMALL)
        corpus = find_corpus(recipe.settings.corpus)
        data, checkpoints = binarise(f"{corpus.source}-{corpus.target}"), tmp_path / "checkpoints"
        command = train_command(recipe.settings, data=data, checkpoints=checkpoints, seed=1, gpus=0)
        process = fairseq_program(*command, folder=tmp_path)
        assert process.returncode == 0, process.stderr[-3000:]
        return recipe, data, checkpoints

    return train_20_updates


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_twenty_updates_of_a_recipes_command_learn_something(name: str, train_20_updates: Callable) -> None:
    pytest.importorskip("fairseq")
    _, _, checkpoints = train_20_updates(name)
    (after_10,), (after_20,) = (list(checkpoints.glob(f"checkpoint_*_{updates}.pt")) for updates in (10, 20))
    early, late = (torch.load(path, weights_only=True) for path in (after_10, after_20))
    assert late["optimizer_history"][-1]["num_updates"] == 20
    assert late["cfg"]["model"].connection == spec_of(name)
    assert late["cfg"]["optimization"]["update_freq"] == [2]
    assert late["extra_state"]["val_loss"] < early["extra_state"]["val_loss"]
    assert all(torch.isfinite(tensor).all() for tensor in late["model"].values())


@pytest.mark.slow
def test_a_recipes_commands_follow_each_other(
    train_20_updates: Callable, fairseq_program: Callable, tmp_path: Path
) -> None:
    pytest.importorskip("fairseq")
    recipe, data, checkpoints = train_20_updates("iwslt15_en_vi_base_2rskip_ln")
    averaged = tmp_path / "averaged.pt"
    process = fairseq_program(
        *average_command(recipe.settings, checkpoints=checkpoints, output=averaged), folder=tmp_path
    )
    assert process.returncode == 0, process.stderr
    names = torch.load(averaged, weights_only=True)["averaged_from"]
    assert [name.rpartition("_")[2] for name in names] == ["10.pt", "20.pt"]
    generate = generate_command(recipe.settings, data=data, checkpoint=averaged, gpu=False)
    process = fairseq_program(*generate, folder=tmp_path)
    assert process.returncode == 0, process.stderr[-3000:]
    assert sum(line.startswith("H-") for line in process.stdout.splitlines()) == 100
