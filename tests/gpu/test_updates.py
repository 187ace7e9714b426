"""Updates on a GPU: our loss against float64 on the CPU, our optimizer against fairseq's, through its trainer."""

from __future__ import annotations

import dataclasses

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_loss_is_that_of_float64(dtype):
    from rskip.transformer.label_smoothing import label_smoothed_cross_entropy

    torch.manual_seed(0)
    features, weight = torch.randn(4, 25, 64) / 8, torch.randn(3000, 64)
    target = torch.randint(2, 3000, (4, 25))
    target[1, 20:] = 1
    found = []
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        f, w = (each.to(dtype).to(device, kind).requires_grad_() for each in (features, weight))
        loss, nll = label_smoothed_cross_entropy(f, w, target.to(device), epsilon=0.1, padding_index=1)
        (loss * 128).backward()
        found.append([each.detach().double().cpu() for each in (loss, nll, f.grad, w.grad)])
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    for expected, ours in zip(*found, strict=True):
        assert (ours - expected).norm() < tolerance * expected.norm()


@pytest.mark.parametrize(
    "flags", [(), ("--bf16",), ("--fp16",), ("--memory-efficient-bf16",), ("--amp",)], ids=" ".join
)
def test_trains_as_with_fairseqs_adam_and_loss(flags):
    pytest.importorskip("fairseq", reason="needs fairseq: run `rskip setup-fairseq`")
    from measuring import fairseq_training
    from measuring.fairseq_training import FAIRSEQ_LOSS, OUR_LOSS, System

    sizes = [
        f"--{side}-{name}={value}"
        for side in ("encoder", "decoder")
        for name, value in (("embed-dim", 64), ("ffn-embed-dim", 128), ("attention-heads", 4), ("layers", 2))
    ]
    workload = dataclasses.replace(fairseq_training.GPU, vocabulary=500, flags=[*sizes, "--dropout", "0"])
    dictionary = fairseq_training.make_dictionary(500)
    batches = fairseq_training.make_batches(8, 600, dictionary, (6, 8, 10))
    parameters = []
    for loss, optimizer in ((FAIRSEQ_LOSS, "adam"), (OUR_LOSS, "rskip_adam")):
        system = System("", "transformer_rskip_ln", loss, flags, optimizer)
        trainer = fairseq_training.build_trainer(system, workload, dictionary, "--clip-norm", "1", "--adam-eps", "1e-4")
        fairseq_training.take_steps(trainer, batches)
        trainer.model.eval()  # float32 products are exact again
        parameters.append([each.detach().cpu().float() for each in trainer.model.parameters()])
    low = torch.finfo(torch.bfloat16 if "bf16" in "".join(flags) else torch.float16).eps if flags else 1e-3
    for expected, ours in zip(*parameters, strict=True):
        torch.testing.assert_close(ours, expected, rtol=low, atol=2e-4)
