"""`--probe-file` probes a training without changing it."""

from __future__ import annotations

import copy

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_compat.one_line_errors import UsageError
from rskip.analysis.blocks import residual_blocks
from rskip.analysis.signals import SignalRecorder
from rskip.analysis.trace import read_updates
from rskip.fairseq_plugin.criterion import ChunkedLabelSmoothedCrossEntropyCriterion

SAS = ["--arch", "transformer_sas_tiny", "--criterion", "rskip_label_smoothed_cross_entropy"]


def assert_same(ours: dict, expected: dict) -> None:
    assert ours.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize(
    "flags",
    [["--bf16"], pytest.param(["--update-freq", "2", "--checkpoint-activations"], marks=pytest.mark.slow)],
    ids=" ".join,
)
def test_the_training_is_the_same_and_goes_on_with_its_trace(train, tmp_path, flags):
    """Dropout draws random numbers, and validation stands between updates."""
    trace = tmp_path / "probe.jsonl"
    flags = [*SAS, "--dropout", "0.2", *flags]
    probe = ["--probe-file", str(trace), "--probe-every", "4"]
    unwatched = train(tmp_path / "unwatched", *flags, "--max-update", "15")
    assert_same(train(tmp_path / "watched", *flags, *probe, "--max-update", "15"), unwatched)
    unbroken = trace.read_text()
    updates = read_updates(trace)
    assert [each["update"] for each in updates] == [1, 4, 8, 12]
    for each in updates:
        assert 0 < each["loss"] < 10 and each["gradient_norm"] > 0
        assert [block["block"] for block in each["blocks"]] == list(range(1, 11))
        assert all(block[key] > 0 for block in each["blocks"] for key in ("x_rms", "f_rms", "y_rms", "gradient"))
        assert all(0 < block[gate] < 1 for block in each["blocks"] for gate in ("alpha", "beta", "gamma"))
    if "--bf16" in flags:  # fairseq itself goes on with rounded parameters
        return
    # stopped after update 13 and repeated from the checkpoint of update 6
    train(tmp_path / "repeated", *flags, "--max-update", "6")
    with trace.open("a") as file:
        file.write('{"update": 13')
    assert_same(train(tmp_path / "repeated", *flags, *probe, "--max-update", "15"), unwatched)
    assert trace.read_text() == unbroken


def test_batches_of_an_update_are_taken_together_without_padding(parse, task, tmp_path):
    """Against a recorder around each batch's passes alone; an evaluation in between is left out."""
    trace = tmp_path / "probe.jsonl"
    flags = ["--encoder-embed-dim", "16", "--dropout", "0", "--probe-file", str(trace)]
    args = parse(*SAS, *flags)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    assert "probe_file" not in vars(args)
    criterion = ChunkedLabelSmoothedCrossEntropyCriterion(task, False, label_smoothing=0.1)
    torch.manual_seed(1)
    batches = [_batch(5, 8, 6), _batch(3, 4, 9)]

    alone = copy.deepcopy(model)
    alone.probe = None
    recorder = SignalRecorder(residual_blocks(alone))
    for sample in batches:
        inputs = sample["net_input"]
        masks = {"encoder": inputs["src_tokens"].ne(1), "decoder": inputs["prev_output_tokens"].ne(1)}
        with recorder.recording(masks):
            criterion(alone, sample)[0].backward()

    for sample in batches:
        model.train().set_num_updates(0)
        criterion(model, sample)[0].backward()
        with torch.no_grad():
            criterion(model.eval(), sample)
    model.all_reduce_grads()
    assert not trace.exists()
    model.train().set_num_updates(0)  # as fairseq does before it raises, where a gradient is not finite
    criterion(model, batches[0])[0].backward()
    (update,) = read_updates(trace)
    assert update == {"update": 1, "loss": None, "gradient_norm": None, "blocks": update["blocks"]}
    for ours, expected in zip(update["blocks"], recorder.rows(), strict=True):
        assert {k: pytest.approx(v, rel=1e-4) if isinstance(v, float) else v for k, v in expected.items()} == ours
    for connection in (block.connection for block in residual_blocks(model)):
        assert not connection._forward_hooks and not connection.alpha_gate._forward_hooks


def _batch(size: int, source_length: int, target_length: int) -> dict:
    source, target = torch.randint(4, 20, (size, source_length)), torch.randint(4, 20, (size, target_length))
    source[1, :3] = target[2, 4:] = 1
    net_input = {"src_tokens": source, "src_lengths": source.ne(1).sum(1), "prev_output_tokens": target.roll(1, dims=1)}
    return {"net_input": net_input, "target": target, "ntokens": int(target.ne(1).sum())}


def test_a_divergence_leaves_its_trace(train, tmp_path):
    trace = tmp_path / "probe.jsonl"
    probe = ["--probe-file", str(trace), "--probe-every", "1"]
    with pytest.raises(FloatingPointError):
        train(tmp_path / "out", *SAS, *probe, "--lr", "1e15", "--warmup-updates", "1", "--max-update", "15")
    updates = read_updates(trace)
    assert [each["update"] for each in updates] == list(range(1, len(updates) + 1)) and len(updates) > 1
    assert updates[0]["gradient_norm"] > 0 and updates[-1]["gradient_norm"] is None
    assert "NaN" not in trace.read_text()
    assert any(value is None for block in updates[-1]["blocks"] for value in block.values())


def test_scaled_gradients_are_refused(train, tmp_path):
    flags = ["--probe-file", str(tmp_path / "a"), "--memory-efficient-fp16", "--max-update", "1"]
    with pytest.raises(UsageError, match="--probe-file doesn't work with --fp16"):
        train(tmp_path / "out", *SAS, *flags)


def test_a_mistake_is_refused(parse):
    for flags, named in (
        (["--probe-every", "0", "--probe-file", "a"], "--probe-every is 0"),
        (["--probe-every", "5"], "--probe-file"),
        (["--probe-file", "a", "--connection", "hyper"], "work with hyper"),
    ):
        with pytest.raises(UsageError, match=named):
            parse(*SAS, *flags)
