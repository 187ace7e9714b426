"""fairseq trains captioning models on stored features, with cross-entropy and self-critically."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch

from fairseq_compat.one_line_errors import usage_error_behind
from rskip.analysis.trace import read_updates
from rskip.captioning.captioner import Captioner
from rskip.captioning.captions import read_split, write_split
from rskip.captioning.features import FeatureStore
from rskip.captioning.model_file import export_captioning_model, load_captioning_model, read_captioning_checkpoint
from rskip.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rskip.fairseq_plugin.initialise import initialise
from rskip.generation import SearchOptions
from rskip.settings.errors import SettingError
from tests.captioning.fairseq.captioning_data import write_corpus

TINY = [
    "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2",
    "--decoder-attention-heads", "2", "--encoder-layers", "1", "--decoder-layers", "1",
]  # fmt: skip
SCHEDULE = [
    "--optimizer", "adam", "--lr", "5e-3", "--max-tokens", "150", "--cpu", "--seed", "3", "--num-workers", "0",
    "--log-format", "simple", "--no-epoch-checkpoints", "--no-progress-bar", "--dropout", "0.1",
]  # fmt: skip
CIDER = ["--eval-cider", "--best-checkpoint-metric", "cider", "--maximize-best-checkpoint-metric"]
TWELVE = ["--max-epoch", "12", "--validate-interval", "6", "--save-interval", "6"]
CROSS_ENTROPY = ["--criterion", "rskip_label_smoothed_cross_entropy", "--label-smoothing", "0.1"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captions")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def command(corpus: Path) -> Callable[..., list[str]]:
    def command(folder: Path, *flags: str) -> list[str]:
        given = "" if "--features" in flags else str(corpus / "features")
        task = ["--user-dir", "rskip", "--task", "captioning", *(["--features", given] if given else [])]
        arch = [] if "--arch" in flags else ["--arch", "captioning_transformer_rskip_ln_tiny"]
        data = [str(corpus / "data"), *task, *arch, "--save-dir", str(folder)]
        return ["fairseq-train", *data, *TINY, *SCHEDULE, *([] if "--criterion" in flags else CROSS_ENTROPY), *flags]

    return command


@pytest.fixture(scope="module")
def train(command: Callable[..., list[str]]) -> Callable[..., dict]:
    """Runs fairseq-train here; returns the last checkpoint's parameters."""

    def run(folder: Path, *flags: str) -> dict:
        from fairseq import checkpoint_utils
        from fairseq_cli.train import cli_main

        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(checkpoint_utils.save_checkpoint, "best", raising=False)  # of another training
            patch.setattr(sys, "argv", command(folder, *flags))
            cli_main()
        return read_checkpoint(folder / "checkpoint_last.pt").model

    return run


@pytest.fixture(scope="module")
def trained(train: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder after cross-entropy training."""
    folder = tmp_path_factory.mktemp("trained")
    train(folder, *CIDER, *TWELVE)
    return folder


def cider_of(checkpoint: Path) -> float:
    return torch.load(checkpoint, weights_only=True)["extra_state"]["best"]


def loaded(checkpoint: Path):
    """Model, task and the validation set as one batch."""
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    (model,), _, task = load_model_ensemble_and_task([str(checkpoint)], arg_overrides={"user_dir": "rskip"})
    task.load_dataset("valid")
    dataset = task.datasets["valid"]
    return model, task, dataset.collater(list(range(len(dataset))))


def with_first_captions(sample: dict) -> dict:
    """The batch with one caption of each image."""
    inputs = {name: each for name, each in sample["net_input"].items() if name != "counts"}
    return {**sample, "net_input": {**inputs, "prev_output_tokens": inputs["prev_output_tokens"][::5]}}


def test_learns_to_name_what_is_there(trained, train, tmp_path):
    """CIDEr-D of images that it never saw, against what a model says that sees nothing."""
    train(tmp_path, *CIDER, *TWELVE, "--features", "constant")
    seeing, blind = cider_of(trained / "checkpoint_best.pt"), cider_of(tmp_path / "checkpoint_best.pt")
    assert seeing > 2 * blind and seeing > 1, (seeing, blind)


def test_checkpoint_to_folder_and_back(trained, corpus, tmp_path):
    model, _, sample = loaded(trained / "checkpoint_best.pt")
    inputs = with_first_captions(sample)["net_input"]
    logits, _ = model.eval()(**inputs)
    every, _ = model(**sample["net_input"])
    torch.testing.assert_close(every[::5], logits, rtol=0, atol=1e-5)
    export_captioning_model(trained / "checkpoint_best.pt", corpus / "data/dict.txt", tmp_path)
    folder, dictionary = load_captioning_model(tmp_path)
    assert len(dictionary) == folder.config.vocabulary and folder.config.features["backbone"] == "toy"
    for ours in (folder, read_captioning_checkpoint(trained / "checkpoint_best.pt")):
        found = ours(inputs["features"], inputs["padding_mask"], inputs["grids"], inputs["prev_output_tokens"])
        torch.testing.assert_close(found, logits, rtol=0, atol=1e-5)
    checkpoint, features = trained / "checkpoint_best.pt", FeatureStore(corpus / "features")
    words = (corpus / "data", corpus / "data/dict.txt")
    captioners = [Captioner.from_pretrained(checkpoint, dictionary=each) for each in words]
    captioners.append(Captioner.from_pretrained(tmp_path))
    given = [features[name] for name in features.names[:5]]
    captions = [[caption.text for caption in captioner.caption(given)] for captioner in captioners]
    assert captions[0] == captions[1] == captions[2] and len(set(captions[0])) > 1
    with pytest.raises(FileNotFoundError, match="no dictionary"):
        Captioner.from_pretrained(checkpoint)

    (tmp_path / "dict.txt").write_text("dog 1\n")
    with pytest.raises(ValueError, match=r"dict\.txt has 5 tokens"):
        load_captioning_model(tmp_path)
    shutil.copyfile(corpus / "data/dict.txt", tmp_path / "dict.txt")
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"feature_dim": 8', '"feature_dim": 9'))
    with pytest.raises(ValueError, match=r"toy of 9.*projection.*\(32, 8\)") as caught:
        load_captioning_model(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / "config.json").write_text(text.replace('"feature_dim"', '"feature_dims"'))
    with pytest.raises(SettingError, match=r"config\.json: .*feature_dim\?"):
        load_captioning_model(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_captioning_model(tmp_path)
    config = {"arch": "transformer", "task": "translation", "source_lang": "en", "target_lang": "de", "model": {}}
    write_checkpoint(tmp_path / "other.pt", Checkpoint(model={}, config=config))
    with pytest.raises(ValueError, match="task 'translation' .*, not of captioning; use `rskip translate`"):
        read_captioning_checkpoint(tmp_path / "other.pt")


def test_beam_search_finds_what_fairseqs_generator_finds(trained):
    from fairseq.sequence_generator import SequenceGenerator

    model, task, sample = loaded(trained / "checkpoint_last.pt")
    for beam in (1, 4):
        generator = SequenceGenerator([model.eval()], task.target_dictionary, beam_size=beam, max_len_b=30)
        expected = generator.generate([model], with_first_captions(sample))
        found = task.search(sample, model, SearchOptions(beam=beam, nbest=beam))
        for ours, theirs in zip(found, expected, strict=True):
            assert [each.tokens.tolist() for each in ours] == [each["tokens"].tolist() for each in theirs]
            scores = [each["score"].item() for each in theirs]
            assert [each.score for each in ours] == pytest.approx(scores, abs=1e-5)


def test_gradient_is_that_of_the_expected_reward(trained, monkeypatch):
    """Over all draws of two captions of at most two words, each weighed by its probability."""
    from rskip.captioning.fairseq.self_critical import SelfCriticalCriterion

    model, task, sample = loaded(trained / "checkpoint_last.pt")
    model, vocabulary, end = model.double().eval(), len(task.target_dictionary), task.target_dictionary.eos()
    words = [token for token in range(vocabulary) if token not in (1, end)]
    captions = [[end, 1, 1], *([word, end, 1] for word in words), *([*pair, end] for pair in product(words, words))]
    tokens = torch.tensor(captions)
    torch.manual_seed(0)
    rewards = torch.rand(len(captions), dtype=torch.float64)
    chosen = tokens.ne(1)
    chosen[:, 2] = False  # an end that no draw decides
    inputs = with_first_captions(sample)["net_input"]
    inputs = {name: None if each is None else each[:1] for name, each in inputs.items()}
    inputs["features"] = inputs["features"].double()

    prefix = torch.cat([torch.full((len(tokens), 1), end), tokens[:, :2]], 1)
    logits = model(**{**inputs, "prev_output_tokens": prefix})[0]
    logits = logits.masked_fill(torch.arange(vocabulary) == 1, -torch.inf).log_softmax(2)
    log_probability = logits.gather(2, tokens[:, :, None])[:, :, 0].masked_fill(~chosen, 0).sum(1)
    probability = log_probability.exp()
    assert probability.sum().item() == pytest.approx(1)
    expected = torch.autograd.grad((probability * rewards).sum(), list(model.parameters()))

    # two draws of K = 2 where the other caption is in its mean: b_k of caption k is E[r] there, by linearity
    weighted = probability.detach()
    mean = (weighted * rewards).sum()
    task.cfg.max_caption_tokens = 2
    criterion = SelfCriticalCriterion(task, samples=2)
    drawn = (weighted * rewards, weighted * mean, tokens, chosen)
    monkeypatch.setattr(criterion, "draw", lambda *_: drawn)
    model.train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    loss, count, _ = criterion(model, {**sample, "net_input": inputs})
    found = torch.autograd.grad(loss, list(model.parameters()))
    assert count == len(captions)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, -theirs, rtol=0, atol=1e-10)


def test_draws_and_baselines(trained):
    from rskip.captioning.fairseq.self_critical import SelfCriticalCriterion

    model, task, sample = loaded(trained / "checkpoint_last.pt")
    count = len(sample["names"])
    torch.manual_seed(0)
    rewards, baseline, captions, chosen = SelfCriticalCriterion(task, samples=3).draw(model, sample)
    assert len(captions) == 3 * count and not torch.equal(captions[0], captions[1])
    others = rewards.view(-1, 3).sum(1, keepdim=True) - rewards.view(-1, 3)
    torch.testing.assert_close(baseline, (others / 2).flatten())
    assert torch.equal(chosen, captions.ne(1))
    names = [name for name in sample["names"] for _ in range(3)]
    torch.testing.assert_close(rewards, torch.from_numpy(task.rewards(names, [each[each != 1] for each in captions])))

    rewards, baseline, captions, _ = SelfCriticalCriterion(task, samples=1).draw(model, sample)
    greedy = task.search(sample, model, SearchOptions(beam=1))
    expected = task.rewards(sample["names"], [best.tokens for best, *_ in greedy])
    torch.testing.assert_close(baseline, torch.from_numpy(expected))
    task.cfg.max_caption_tokens = 2  # captions are cut off there, and their end is nobody's choice
    *_, captions, chosen = SelfCriticalCriterion(task, samples=2).draw(model, sample)
    assert captions.size(1) == 3 and captions[:, 2].eq(2).any() and not chosen[:, 2].any()


@pytest.mark.slow
def test_self_critical_training_raises_the_reward(train, tmp_path):
    from rskip.captioning.fairseq.self_critical import SelfCriticalCriterion

    train(tmp_path / "xe", "--max-epoch", "2")
    start = ["--finetune-from-model", str(tmp_path / "xe/checkpoint_last.pt")]
    train(tmp_path / "sc", *start, "--criterion", "self_critical", "--lr", "4e-3", "--max-epoch", "8", "--bf16")
    rewards = []
    for name in ("xe", "sc"):
        model, task, _ = loaded(tmp_path / name / "checkpoint_last.pt")
        task.load_dataset("train")
        sample = task.datasets["train"].collater(list(range(24)))
        torch.manual_seed(0)
        rewards.append(SelfCriticalCriterion(task, samples=20).draw(model, sample)[0].mean().item())
    assert rewards[1] > 1.15 * rewards[0], rewards


def test_mistakes_are_one_line(command, corpus, tmp_path, monkeypatch):
    from fairseq_cli.train import cli_main

    for flags, word in (
        (["--features", str(tmp_path / "none")], "no features"),
        (["--share-all-embeddings"], "--share-decoder-input-output-embed"),
        (["--encoder-embed-dim", "33"], "--encoder-embed-dim"),
        (["--criterion", "self_critical", "--samples", "0"], "--samples"),
        (["--max-caption-tokens", "0"], "--max-caption-tokens"),
        (["--valid-subset", "dev"], "dev.jsonl"),
        (["--features", ""], "--features"),
        ([], "no captions in"),
    ):
        words = command(tmp_path / "out", *flags)
        if not flags:
            words[1] = str(tmp_path)
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises((ValueError, SystemExit)) as caught:
            cli_main()
        error = usage_error_behind(caught.value)
        assert error is not None and word in str(error) and "\n" not in str(error)


def test_a_checkpoint_keeps_to_its_features(trained, corpus, tmp_path):
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    shutil.copytree(corpus / "features", tmp_path / "features")
    index = tmp_path / "features/features.json"
    index.write_text(index.read_text().replace('"toy"', '"other"'))
    path = str(trained / "checkpoint_last.pt")
    with pytest.raises(ValueError, match="is 'other': expected 'toy', as in the model's training"):
        load_model_ensemble_and_task([path], arg_overrides={"features": str(tmp_path / "features")})


def test_a_profiling_pass_reads_features_and_captions(command, tmp_path):
    words = command(tmp_path / "none", "--connection", "admin")[1:]
    encoder, decoder = initialise(words, tmp_path / "start.pt").values()
    assert len(encoder) == 2 and len(decoder) == 3
    assert encoder[0] == decoder[0] == 1 and encoder[1] != 1 and 1 != decoder[1] < decoder[2]


def test_images_without_features_are_left_out(corpus, tmp_path, caplog):
    from fairseq_compat.one_line_errors import UsageError
    from rskip.captioning.fairseq.task import CaptioningTask, CaptioningTaskConfig

    shutil.copytree(corpus / "data", tmp_path / "data")
    images = read_split(corpus / "data", "train")
    strangers = [type(each)(f"other{each.name}", each.captions, each.tokens) for each in images]
    write_split(tmp_path / "data", "train", [*images, *strangers])
    write_split(tmp_path / "data", "valid", strangers)
    cfg = CaptioningTaskConfig(data=str(tmp_path / "data"), features=str(corpus / "features"))
    task = CaptioningTask.setup_task(cfg)
    task.load_dataset("train")
    assert len(task.datasets["train"]) == len(images)
    assert "24 of 48 images have no features and are left out, such as other0.jpg" in caplog.text
    with pytest.raises(UsageError, match="no image of valid"):
        task.load_dataset("valid")


@pytest.mark.slow
def test_resumed_run_equals_an_unbroken_one(train, tmp_path):
    """Self-critical training, which draws captions; tests/fairseq_plugin/test_training.py has cross-entropy."""
    flags = ["--criterion", "self_critical"]
    unbroken = train(tmp_path / "unbroken", *flags, "--max-update", "9")
    flags += ["--probe-file", str(tmp_path / "probe.jsonl"), "--probe-every", "3"]
    train(tmp_path / "resumed", *flags, "--max-update", "5")  # ends inside an epoch
    resumed = train(tmp_path / "resumed", *flags, "--max-update", "9")
    updates = read_updates(tmp_path / "probe.jsonl")
    assert [each["update"] for each in updates] == [1, 3, 6, 9]
    assert all("similarity" in block for each in updates for block in each["blocks"])
    for parameter, tensor in unbroken.items():
        torch.testing.assert_close(resumed[parameter], tensor, rtol=0, atol=0)


@pytest.mark.slow
def test_two_processes_go_on_as_one_does_with_update_freq_2(train, command, fairseq_program, tmp_path):
    flags = ["--dropout", "0", "--max-tokens", "100", "--adam-eps", "1e-4", *CIDER]
    one = train(tmp_path / "one", *flags, "--update-freq", "2", "--max-epoch", "2")
    train(tmp_path / "two", *flags, "--update-freq", "2", "--max-epoch", "1")
    words = command(tmp_path / "two", *flags, "--max-epoch", "2", "--distributed-backend", "gloo")
    process = fairseq_program(*words, folder=tmp_path, ranks=2)
    assert process.returncode == 0, process.stderr[-3000:]
    two = read_checkpoint(tmp_path / "two/checkpoint_last.pt").model
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-4)
    best = [cider_of(tmp_path / each / "checkpoint_last.pt") for each in ("one", "two")]
    assert best[0] == pytest.approx(best[1], abs=1e-3)  # each image scored once
