"""fairseq's trainer with our optimizer and loss on a GPU, an emulated one: the same training in fewer calls."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from measuring import fairseq_training
from measuring.fairseq_training import OUR_LOSS, System

from fairseq_compat.one_line_errors import UsageError

SMALL = [
    *("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32", "--encoder-attention-heads", "2"),
    *("--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "32", "--decoder-attention-heads", "2"),
]
@pytest.fixture(autouse=True)
def arithmetic():
    """Training on a GPU sets it for the process."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = before[1:]


def workload(*flags):
    return dataclasses.replace(fairseq_training.GPU, vocabulary=50, flags=[*SMALL, *flags])


def train(system, setting, updates):
    """The trainer after so many updates on batches with padding, and these batches."""
    dictionary = fairseq_training.make_dictionary(setting.vocabulary)
    batches = fairseq_training.make_batches(updates, 60, dictionary, (6, 8))
    trainer = fairseq_training.build_trainer(system, setting, dictionary, "--clip-norm", "0.5", "--adam-eps", "1e-4")
    fairseq_training.take_steps(trainer, batches)
    return trainer, batches


@pytest.mark.parametrize(
    "precision", [("--bf16",), pytest.param(("--fp16", "--fp16-init-scale", "1024"), marks=pytest.mark.slow)], ids=str
)
def test_an_update_of_a_base_transformer_takes_so_many_calls(precision, emulated_cuda):
    """Of 6 + 6 layers; the sizes of tensors don't matter. tests/gpu/test_updates.py has their values."""
    system = System("", "transformer_skip_ln", OUR_LOSS, precision, "rskip_adam")
    trainer, batches = train(system, workload("--dropout", "0.1"), 1)
    emulated_cuda.clear()
    fairseq_training.take_steps(trainer, batches)
    assert emulated_cuda.calls.total() <= 900
    waits = {place: count for place, count in emulated_cuda.synchronisations.items() if "transformer/" not in place}
    assert sum(waits.values()) == 2  # for the gradient's norm, and for the log
    assert all("fairseq_plugin/adam.py" in place or "fairseq_plugin/criterion.py" in place for place in waits)


@pytest.fixture(scope="module")
def small_trainer():
    """Builds a trainer of one layer in bfloat16, and its batches."""
    system = System("", "transformer_skip_ln", OUR_LOSS, ("--bf16",), "rskip_adam")
    return lambda: train(system, workload("--encoder-layers", "1", "--decoder-layers", "1"), 1)


def test_a_batch_too_large_is_named_and_training_goes_on(small_trainer, emulated_cuda, caplog, monkeypatch):
    trainer, batches = small_trainer()
    before = [each.detach().clone() for each in trainer.model.parameters()]
    with monkeypatch.context() as patch, caplog.at_level("WARNING"):
        patch.setattr(trainer.model.encoder, "forward", lambda *_, **__: too_large())
        fairseq_training.take_steps(trainer, batches)
    expected = "out of memory on a batch of 10 sentences of up to 6 source and 6 target tokens: lower --max-tokens or "
    assert expected + "--batch-size, and raise --update-freq by as much" in caplog.messages
    assert trainer.get_num_updates() == 1
    assert all(torch.equal(*pair) for pair in zip(before, trainer.model.parameters(), strict=True))
    fairseq_training.take_steps(trainer, batches)
    assert trainer.get_num_updates() == 2


def too_large():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_bfloat16_needs_a_gpu_that_computes_it(small_trainer, emulated_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    with pytest.raises(UsageError, match="^--bf16: the GPU emulated doesn't support bfloat16: use --fp16, or leave"):
        small_trainer()


def test_training_multiplies_by_tf32_and_evaluation_does_not(small_trainer, emulated_cuda):
    trainer, _ = small_trainer()
    assert torch.get_float32_matmul_precision() == "high"
    trainer.model.eval()
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cudnn.benchmark
