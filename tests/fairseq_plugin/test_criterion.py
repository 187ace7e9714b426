"""Our criterion gives fairseq's loss, gradients and log, in training and validation."""

from __future__ import annotations

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel

from rskip.fairseq_plugin.criterion import ChunkedLabelSmoothedCrossEntropyCriterion


@pytest.fixture
def sample():
    torch.manual_seed(1)
    source, target = torch.randint(4, 20, (5, 8)), torch.randint(4, 20, (5, 6))
    source[1, :3] = target[2, 4:] = 1
    prefix = target.roll(1, dims=1)
    net_input = {"src_tokens": source, "src_lengths": source.ne(1).sum(1), "prev_output_tokens": prefix}
    return {"net_input": net_input, "target": target, "ntokens": int(target.ne(1).sum())}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("further", [["--connection", "prenorm+ln"], ["--output-bias", "--share-all-embeddings"]])
def test_equals_fairseqs(parse, task, sample, further, sentence_avg, training):
    flags = ["--connection", "2rskip+ln", "--encoder-embed-dim", "16", "--dropout", "0"]
    args = parse("--arch", "transformer_skip_ln_tiny", *flags, *further)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task).train(training)
    results = []
    for kind in (LabelSmoothedCrossEntropyCriterion, ChunkedLabelSmoothedCrossEntropyCriterion):
        model.zero_grad()
        loss, sample_size, log = kind(task, sentence_avg, label_smoothing=0.1)(model, sample)
        loss.backward()
        results.append((loss, sample_size, log, [parameter.grad.clone() for parameter in model.parameters()]))
    expected, ours = results
    torch.testing.assert_close(ours[0], expected[0], rtol=1e-6, atol=0)
    assert ours[1] == expected[1] and ours[2].keys() == expected[2].keys()
    for key, value in expected[2].items():
        assert float(ours[2][key]) == pytest.approx(float(value), rel=1e-6), key
    for mine, theirs in zip(ours[3], expected[3], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("arch", ["transformer_tiny", "lstm"])
def test_a_model_of_fairseqs_trains_with_fairseqs_computation(parse, task, sample, arch):
    sample["net_input"]["src_lengths"].fill_(8)  # an LSTM expects falling lengths
    args = parse("--arch", arch, "--dropout", "0")
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task).eval()
    expected, ours = (
        kind(task, False, label_smoothing=0.1)(model, sample)
        for kind in (LabelSmoothedCrossEntropyCriterion, ChunkedLabelSmoothedCrossEntropyCriterion)
    )
    assert torch.equal(ours[0], expected[0]) and ours[1:] == expected[1:]


def test_probabilities_are_fairseqs(parse, task, sample):
    args = parse("--arch", "transformer_skip_ln_tiny", "--encoder-embed-dim", "16")
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task).eval()
    output = model(**sample["net_input"])
    for log_probs in (True, False):
        expected = FairseqEncoderDecoderModel.get_normalized_probs(model, output, log_probs)
        torch.testing.assert_close(model.get_normalized_probs(output, log_probs), expected, rtol=1e-6, atol=1e-5)


def test_half_precision_takes_fairseqs_computation(parse, task, sample, monkeypatch):
    args = parse("--arch", "transformer_skip_ln_tiny", "--encoder-embed-dim", "16")
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    monkeypatch.setattr(LabelSmoothedCrossEntropyCriterion, "forward", lambda *_: "fairseq's")
    criterion = ChunkedLabelSmoothedCrossEntropyCriterion(task, False, label_smoothing=0.1)
    assert criterion(model, sample) != "fairseq's"
    with torch.autocast("cpu", torch.bfloat16):
        assert criterion(model, sample) == "fairseq's"
    assert criterion(model.half(), sample) == "fairseq's"
