"""The chunked loss equals its definition over the whole of the logits."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from rskip.cpu.loss import cross_entropy_kernel
from rskip.transformer.label_smoothing import CHUNK, label_smoothed_cross_entropy


def definition(features, weight, target, epsilon, padding_index):
    """1 - epsilon to the true token, epsilon shared by the V - 1 others (Szegedy et al. 2016, as fairseq has it)."""
    log_probabilities = (features @ weight.T).log_softmax(-1).flatten(0, -2)
    target = target.flatten()
    wanted = torch.full_like(log_probabilities, epsilon / (weight.size(0) - 1))
    wanted.scatter_(1, target[:, None], 1 - epsilon)
    real = target != padding_index
    loss = -(wanted * log_probabilities).sum(1)[real].sum()
    return loss, -log_probabilities.gather(1, target[:, None])[:, 0][real].sum()


@pytest.fixture(params=["PyTorch", "kernel"])
def loss_of(request):
    """The loss by PyTorch, and by the compiled kernel where there is one."""
    if request.param == "PyTorch":
        return label_smoothed_cross_entropy
    return partial(label_smoothed_cross_entropy, find_kernel=cross_entropy_kernel)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("count", [3, CHUNK, 2 * CHUNK + 5])
def test_value_and_gradient(count, epsilon):
    torch.manual_seed(0)
    features = torch.randn(2, count, 8, dtype=torch.float64)
    weight = torch.randn(50, 8, dtype=torch.float64)
    target = torch.randint(0, 50, (2, count))
    target[1, ::3] = 1
    results = []
    for loss_of in (
        definition,
        lambda f, w, t, e, p: label_smoothed_cross_entropy(f, w, t, epsilon=e, padding_index=p),
    ):
        f, w = features.clone().requires_grad_(), weight.clone().requires_grad_()
        loss, nll = loss_of(f, w, target, epsilon, 1)
        (3 * loss).backward()
        results.append((loss.detach(), nll.detach(), f.grad, w.grad))
    for ours, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-11)


def test_the_compiled_loss_is_pytorchs():
    """In float32 to its precision, over several chunks; without kernels both are PyTorch's."""
    torch.manual_seed(0)
    features, weight, target = torch.randn(1100, 16), torch.randn(400, 16), torch.randint(0, 400, (1100,))
    results = []
    for options in ({}, {"find_kernel": cross_entropy_kernel}):
        f, w = features.clone().requires_grad_(), weight.clone().requires_grad_()
        loss, nll = label_smoothed_cross_entropy(f, w, target, epsilon=0.1, padding_index=1, **options)
        loss.backward()
        results.append((loss.detach(), nll, f.grad, w.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_a_target_beyond_the_vocabulary_is_an_error(loss_of):
    for wrong in (9, -1):
        with pytest.raises((IndexError, RuntimeError), match="labels include .*: expected 0 to 8|out of bounds"):
            loss_of(
                torch.randn(1, 4), torch.randn(9, 4), torch.tensor([wrong]), epsilon=0.0, padding_index=1
            )


def test_extreme_logits_stay_finite(loss_of):
    features = torch.tensor([[300.0], [-300.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]])
    loss, nll = loss_of(
        features, weight, torch.tensor([1, 1]), epsilon=0.0, padding_index=2
    )
    loss.backward()
    assert nll.item() == 600.0 and features.grad.tolist() == [[2.0], [0.0]]


def test_bfloat16_gradients_are_those_of_float32_to_its_precision(loss_of):
    torch.manual_seed(0)
    target = torch.randint(2, 400, (300,))
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        generator = torch.Generator().manual_seed(1)
        features = torch.randn(300, 16, generator=generator).bfloat16().to(dtype).requires_grad_()
        weight = torch.randn(400, 16, generator=generator).bfloat16().to(dtype).requires_grad_()
        loss_of(features, weight, target, epsilon=0.1, padding_index=1)[0].backward()
        results.append((features.grad.float(), weight.grad.float()))
    for exact, rounded in zip(*results, strict=True):
        assert (rounded - exact).norm() < 0.01 * exact.norm()


def test_no_gradient_is_computed_where_none_is_wanted(loss_of, monkeypatch):
    features = torch.randn(5, 4, requires_grad=True)
    weight = torch.randn(9, 4, requires_grad=True)
    monkeypatch.setattr(torch, "zeros_like", None)  # what the gradients would be gathered in
    with torch.no_grad():
        loss_of(features, weight, torch.tensor([2] * 5), epsilon=0.1, padding_index=1)
    with pytest.raises(TypeError):
        loss_of(features, weight, torch.tensor([2] * 5), epsilon=0.1, padding_index=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_on_a_gpu_it_is_the_same_without_a_wait(dtype, autocast, emulated_cuda, monkeypatch):
    """Padding is computed there, and must not count, whatever it holds; in float16 the loss is scaled."""
    monkeypatch.setattr("rskip.transformer.label_smoothing.GPU_LOGITS", 40 * 400)  # three chunks
    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(*size, 16, generator=generator) / 4 for size in ((4, 25), (400,)))
    target = torch.randint(2, 400, (4, 25), generator=generator)
    target[1, 20:] = target[3, :3] = 1
    scale = 2.0**10 if dtype == torch.float16 else 1.0
    low, own = (torch.float32, dtype) if autocast else (dtype, dtype)
    f64, w64 = (each.to(dtype).double().requires_grad_() for each in (features, weight))
    exact, exact_nll = definition(f64, w64, target, 0.1, 1)
    exact.backward()
    features = features.to(low)
    features[1, 22] = float("nan")
    f, w = (each.to(low).cuda().requires_grad_() for each in (features, weight))
    labels = target.cuda()
    emulated_cuda.clear()
    with torch.autocast("cuda", own, enabled=autocast):
        loss, nll = label_smoothed_cross_entropy(f, w, labels, epsilon=0.1, padding_index=1)
    (loss * scale).backward()
    assert not emulated_cuda.synchronisations
    assert loss.dtype == nll.dtype == torch.float32 and f.grad.dtype == f.dtype and w.grad.dtype == w.dtype
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    for found, expected in ((loss, exact), (nll, exact_nll)):
        assert float(found.cpu()) == pytest.approx(float(expected), rel=tolerance)
    for found, expected in ((f.grad.cpu(), f64.grad), (w.grad.cpu(), w64.grad)):
        assert (found.double() / scale - expected).norm() < tolerance * expected.norm()
    assert f.grad.cpu()[1, 20:].count_nonzero() == f.grad.cpu()[3, :3].count_nonzero() == 0


def test_gradients_below_float16_survive_by_the_loss_scale(emulated_cuda):
    """Of words that are improbable: fairseq scales the loss so that they don't round to nothing."""
    weight = torch.tensor([[8.0], [-10.0], [0.0]])
    gradients = []
    for dtype, scale in ((torch.float64, 1.0), (torch.float16, 1.0), (torch.float16, 2.0**13)):
        f, w = torch.ones(1, 1, dtype=dtype), weight.to(dtype)
        f, w = (each.cuda().requires_grad_() for each in (f, w))
        loss, _ = label_smoothed_cross_entropy(f, w, torch.tensor([0]).cuda(), epsilon=0.0, padding_index=2)
        (loss * scale).backward()
        gradients.append(w.grad.cpu().double()[1].item() / scale)
    exact, lost, kept = gradients
    assert exact > 0 and lost == 0 and kept == pytest.approx(exact, rel=0.3)
