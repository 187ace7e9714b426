"""Every variant of recipes/: it loads, is what its name and its paper say, and made the records that are committed."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rskip.connections import parse_connection
from rskip.corpora import find_corpus
from rskip.experiments.recipe import Recipe, load_recipe, load_recipes
from rskip.formulas import registry
from rskip.records import read_records
from rskip.tasks.run import Run
from rskip.translation.recipe import TOKENS_PER_UPDATE as KEY
from rskip.translation.training import generate_command, scored_file, training_of
from rskip.zoo.registry import read_registry

ROOT = Path(__file__).parents[2]
OWN = ("field", "lm_")  # grids of our own studies
DATA_OF_USERS = {"en_vi_30k"}  # whose recipes load only where the user has made their data
KNOWN = dict(registry._families)  # with what recipes' user-dirs register, which other test files are not to see
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(registry, "_families", KNOWN)
    PATHS = [path for path in sorted((ROOT / "recipes").glob("*.yaml")) if path.stem not in DATA_OF_USERS]
    FILES = {path.stem: load_recipes(path) for path in PATHS}
RECIPES = {recipe.address: recipe for recipes in FILES.values() for recipe in recipes}
TRANSLATION = {name: recipe for name, recipe in RECIPES.items() if recipe.task.name == "translation"}
VISION = {name: recipe for name, recipe in RECIPES.items() if recipe.task.name == "vision"}


def of_paper(name: str) -> tuple[float, int, int]:
    """The paper's dropout, tokens per update and updates of a variant. Its scores are typed in recipes/ only."""
    big = "/big_" in name
    if name.startswith("iwslt15"):
        return (0.3 if big else 0.1), 4096, 100_000
    dropout = 0.3 if big and name.startswith("wmt14_en_de") else 0.1
    if name.endswith(("_sas", "_sas_settings")):
        return dropout, 25000, 300_000 if big else 100_000
    return dropout, 16384, 550_000


# features, features inside the feed-forward branch, heads, layers of each stack
SIZES = {"base": (512, 2048, 8, 6), "big": (1024, 4096, 16, 6), "2layer": (512, 2048, 8, 2)}

SAS = "sas:alpha_bias=3,beta_bias=-3"
CIFAR10 = {  # the connections of variants whose name is not their spec with _ for +
    "0p5xskip": "0.5xskip",
    "0p5xskip_ln": "0.5xskip+ln",
    "1xskip_ln_branch3": "1xskip+ln:branch_scale=3",
    "wskip_ln_init1": "wskip+ln",
    "wskip_ln_init2": "wskip+ln:init=2",
    "hyper_streams2": "hyper:streams=2",
    "sas": SAS,
    "sas_bn": "sas+bn:alpha_bias=3,beta_bias=-3",
    "sas_gamma_free": f"{SAS},gamma=free",
    "sas_no_norm_term": f"{SAS},norm_term=false",
    "sas_gate_single_no_norm_term": f"{SAS},gate=single,norm_term=false",
    "highway_gate_single": "highway:gate=single",
    "highway_bias_m6": "highway:bias=-6",
    "highway_gate_full": "highway:gate=full",
}
COCO = {"base": "skip_ln", "sas": "sas"}


@pytest.fixture(autouse=True)
def connections_of_user_dirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_families", KNOWN)


def read_text(recipe: Recipe) -> str:
    return recipe.path.read_text(encoding="utf-8")


def test_committed_records_and_registered_models_were_made_by_the_variants_as_they_are() -> None:
    def again(address: str, overrides: Any) -> Recipe:
        file, _, variant = address.partition("/")
        texts = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
        return load_recipe(ROOT / f"recipes/{file}.yaml", variant=variant or None, overrides=texts)

    records = {str(record.path.relative_to(ROOT)): record for record in read_records(ROOT / "study/results/runs")}
    assert len({record.run for record in records.values()}) >= 6
    for path, record in records.items():
        if record.address.startswith(tuple(DATA_OF_USERS)):
            continue
        recipe = again(record.address, record.overrides)
        assert (record.config, record.run, record.address) == (recipe.config, recipe.run, recipe.address), path
        assert path == str(recipe.record_path(record.seed))
        assert record.config == json.loads(json.dumps(recipe.config)), "as JSON has it"
    for name, entry in read_registry(ROOT / "checkpoints.json").items():
        recipe = again(entry.recipe, entry.overrides)
        assert records[str(recipe.record_path(entry.seed))].config == recipe.config, name
        assert entry.folder == f"checkpoints/{recipe.run}"


def parse(command: list[str], *, generation: bool = False) -> Namespace:
    """A command's arguments as fairseq's own parser reads them."""
    options = pytest.importorskip("fairseq.options")
    parser = options.get_generation_parser() if generation else options.get_training_parser()
    return options.parse_args_and_arch(parser, command[1:])


def connection_of(name: str) -> str:
    """The connection that a variant's name ends in, as a spec: `..._2rskip_ln` -> `2rskip+ln`."""
    match = re.search(r"[_/](\d[xr]skip(_ln)?|sas)(_sas_settings)?$", name)
    assert match, name
    return match[1].replace("_", "+")


def test_fairseq_takes_the_flags_of_every_variant_and_a_papers_variant_is_what_its_name_and_the_paper_say() -> None:
    for name, recipe in TRANSLATION.items():
        if name.startswith(OWN) and not name.endswith("_sas_lr4e-3"):
            continue
        run = Run(name=name, seed=1, settings=recipe.settings)
        flags, args = recipe.settings.train, parse(training_of(run).command("bfloat16"))
        if not name.startswith("multi30k_lr") or name.endswith("lr5e-4"):
            for flag, value in flags.items():
                parsed = getattr(args, flag.replace("-", "_"), None)
                parsed = parsed[0] if isinstance(parsed, list) else parsed
                assert flag == KEY or (flag == "max-tokens" and KEY in flags) or str(parsed) == str(value), (name, flag)
            parsed = parse(generate_command(run, checkpoint=scored_file(run)), generation=True)
            for flag, value in recipe.settings.generate.items():
                assert str(getattr(parsed, flag.replace("-", "_"))) == str(value), (name, flag)
        if not name.startswith(("iwslt15_en_vi", "wmt14_en_")):
            continue
        dropout, tokens, updates = of_paper(name)
        named = re.match(r"(iwslt15_en_vi|wmt14_en_..)/([^_]+)", name)
        assert named
        width, *sizes = SIZES[named[2]]
        assert recipe.settings.corpus == find_corpus(named[1].replace("_", "-")).name
        assert args.connection == connection_of(name), name
        assert not {"encoder-connection", "decoder-connection"} & set(flags)
        for side in ("encoder", "decoder"):
            features = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
            assert [getattr(args, f"{side}_{each}") for each in features] == [width, *sizes], name
        assert (args.dropout, args.label_smoothing, args.share_all_embeddings) == (dropout, 0.1, True), name
        assert (args.adam_betas, args.adam_eps, args.clip_norm) == ("(0.9, 0.98)", 1e-9, 0.0)
        assert args.lr == pytest.approx([width**-0.5 * 4000**-0.5], rel=1e-5), name
        assert (args.lr_scheduler, args.warmup_updates, args.warmup_init_lr) == ("inverse_sqrt", 4000, -1)
        assert (args.max_update, flags[KEY]) == (updates, tokens), name
        averaged_checkpoints = 10 if name.endswith(("_sas", "_sas_settings")) else 20 if "/big_" in name else 5
        assert (recipe.settings.average.last, recipe.settings.averages_by) == (averaged_checkpoints, "update")
        generate = recipe.settings.generate
        assert (generate["beam"], generate["lenpen"], generate["length-penalty-kind"]) == (4, 0.6, "gnmt")
        assert recipe.paper and all(each.measure == "BLEU" for each in recipe.paper), name


def is_ours(name: str) -> bool:
    """A training of images that no paper has."""
    return any(study in name for study in ("_fast/", "_short/", "_resnet20/"))


def test_a_variant_of_images_is_what_its_name_and_the_papers_say() -> None:
    for name, recipe in VISION.items():
        if name.startswith(("field", "cifar10_resnet20_search", "cifar10_vit")):
            continue
        match = re.fullmatch(r"(cifar\d+)(?:_fast|_short|_resnet20)?[/_]preact(\d+)[/_](\w+)", name)
        assert match, name
        dataset, depth, train = match[1], int(match[2]), recipe.settings.train
        connection = match[3].removesuffix("_no_norm_decay")
        assert train.decay == ("all" if match[3] == connection else "weights"), name
        assert train.shortcut_input == ("raw" if depth == 20 and is_ours(name) else "activated"), name
        named = CIFAR10.get(connection, connection.replace("_", "+"))
        assert (train.dataset, train.depth, train.connection) == (dataset, depth, named), name
        written = yaml.safe_load(read_text(recipe))["variants"][recipe.variant]["train"]["connection"]
        assert written == str(parse_connection(written)), f"{name}: the file has the connection's canonical text"
        if is_ours(name):
            continue
        assert (train.batch_size, train.iterations, train.epochs) == (128, 64_000, None)
        assert (train.schedule, train.lr, train.milestones) == ("step", 0.1, (32_000, 48_000))
        assert (train.warmup_lr, train.warmup_iterations) == (0.01, 400)
        assert (train.momentum, train.nesterov, train.weight_decay) == (0.9, False, 2e-4)
        assert (train.shortcut, train.block, train.label_smoothing, train.clip_norm) == ("zero_pad", "basic", 0, None)
        assert train.precision == "bfloat16"
        if dataset == "cifar10":
            assert bool(recipe.paper) == (depth == 110), f"{name}: depth 20 is in no paper"


def test_a_variant_of_captions_is_what_its_name_and_the_paper_say() -> None:
    for name, connection in COCO.items():
        cross_entropy, self_critical = (
            RECIPES[f"sas_table5/{name}_{stage}"] for stage in ("cross_entropy", "self_critical")
        )
        assert cross_entropy.settings.prepare.min_count == 5 and cross_entropy.paper == ()
        assert cross_entropy.settings.train["arch"] == f"captioning_transformer_{connection}"
        assert cross_entropy.settings.train == self_critical.settings.train
        assert list(self_critical.settings.stages()) == ["train", "self_critical"]
        assert len({each.measure for each in self_critical.paper}) == 8
    settings = [RECIPES[f"flickr8k/{name}"].settings for name in ("1xskip_ln", "2rskip_ln", "sas", "no_image")]
    assert [each.train["arch"].removeprefix("captioning_transformer_") for each in settings] == [
        "skip_ln_tiny",
        "rskip_ln_tiny",
        "sas_tiny",
        "skip_ln_tiny",
    ]
    assert len({str({**each.to_plain()["train"], "arch": ""}) for each in settings}) == 1
    assert [each.features.backbone for each in settings] == ["tf_efficientnet_lite0"] * 3 + ["constant"]
