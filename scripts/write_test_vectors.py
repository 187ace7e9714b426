"""Writes rskip/connections/test_vectors.json: inputs, parameters, outputs and gradients of one block per connection.

    python scripts/write_test_vectors.py

docs/own_connection.md says how to check another library with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rskip
from rskip.connections import Place, build_connection, build_stack_connection

FILE = Path(rskip.__file__).parent / "connections" / "test_vectors.json"
FEATURES, POSITIONS, EPS = 4, 2, 1e-5
NORMS = (
    "LN(z) = (z - mean)/sqrt(variance + 1e-5)*weight + bias, RMS(z) = z/sqrt(mean square + 1e-5)*weight, over "
    "features."
)
MHC = (
    "h (n, C) per position; r = sqrt(mean square of all nC values + 1e-5); (u, v, w) = mixing @ flat(h)/r, with "
    "n, n and n*n values; alpha = sigmoid(scale[0]*u + bias[:n]) + gate_eps; beta = 2*sigmoid(scale[1]*v + "
    "bias[n:2n]); R = softmax over k of (scale[2]*w + bias[2n:]).view(n, n)[j, k], plus 1e-6; then 39 divisions "
    "in turn, of column k by sum_j R[j, k] + 1e-6 and of row j by sum_k R[j, k] + 1e-6, columns first and last. "
    "given = RMS(sum_j alpha[j]*h[j]); h'[k] = sum_j R[j, k]*h[j] + beta[k]*f: R is indexed [from, to]."
)
HEAD = (
    "; head: g = sigmoid(stack.scale*(stack.mixing @ flat(h')/r') + stack.bias) + gate_eps; left = sum_k "
    "g[k]*h'[k]"
)
CASES = {
    "hyper:streams=3": (
        "h (n, C) per position; z[j] = LN(h[j]) with stream_norm; W = [input_weights, stream_weights] (n, 1 + n) "
        "+ mixing_scale*tanh(z @ mixing); alpha = W[:, 0], R = W[:, 1:]; beta[j] = output_weights[j] + "
        "output_scale*tanh(z[j] @ output_mixing); given = LN(sum_j alpha[j]*h[j]); h'[k] = sum_j R[j, k]*h[j] + "
        "beta[k]*f: R is indexed [from, to]; left = sum_k h'[k]."
    ),
    "mhc+rms:streams=3": MHC + " gate_eps = 0; left = sum_k h'[k].",
    "mhc+rms:exit=head,gate_eps=1e-06,streams=3": MHC + " gate_eps = 1e-6" + HEAD + ".",
    "attnres+rms:blocks=2": (
        "state v (m, C) per position, the last one a partial sum; e[i] = query . RMS(v[i]) with attention.norm; h "
        "= sum_i softmax(e)[i]*v[i]; given = RMS(h); v'[last] = v[last] + f; left = the same attention over v' "
        "with the stack's query and norm. Scores are not divided by sqrt(C), and values are not normalised."
    ),
    "sas": (
        "gate(z) = sigmoid(tanh(z @ hidden.weight^T + hidden.bias) @ output.weight^T + output.bias) of z = [x; "
        "f], one value; a and b are the gates alpha_gate and beta_gate; given = x; y = a*x + b*f + (1 - a)*(1 - "
        "b)*LN(x + f)."
    ),
}


def vectors() -> dict[str, Any]:
    """All cases, in float64."""
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    cases = []
    for spec, formula in CASES.items():
        place = Place("decoder", "self_attn", sublayer=5, sublayers=6, layer=3, layers=3)
        connection: Any = build_connection(spec, FEATURES, place=place, eps=EPS).double()
        stack: Any = build_stack_connection(spec, FEATURES, eps=EPS).double()
        parameters = dict(connection.named_parameters())
        parameters |= {f"stack.{name}": each for name, each in stack.named_parameters()}
        with torch.no_grad():
            for each in parameters.values():
                each.copy_(0.7 * drawn(*each.shape))
        count = connection.values if spec.startswith("attnres") else connection.streams if spec != "sas" else 0
        x = drawn(POSITIONS, count, FEATURES) if count else drawn(POSITIONS, FEATURES)
        f = drawn(POSITIONS, FEATURES)
        inputs = {"state": x.requires_grad_(), "f": f.requires_grad_()}
        given, kept = connection.before(tuple(x.unbind(-2)) if spec.startswith("attnres") else x)
        state = connection.after(kept, f)
        outputs = {"given": given, "state": torch.stack(state, -2) if isinstance(state, tuple) else state}
        if spec != "sas":
            outputs["left"] = stack.leave(state)
        weights = {name: drawn(*each.shape) for name, each in outputs.items()}
        loss = sum((weights[name] * each).sum() for name, each in outputs.items())
        variables = inputs | parameters
        found = torch.autograd.grad(loss, list(variables.values()))
        cases.append({
            "spec": spec, "formula": formula, "inputs": _lists(inputs), "parameters": _lists(parameters),
            "outputs": _lists(outputs), "loss_weights": _lists(weights),
            "gradients": _lists(dict(zip(variables, found, strict=True))),
        })  # fmt: skip
    about = "loss = sum over outputs of (loss_weights * output).sum(); gradients are of the loss. float64. " + NORMS
    return {"about": about, "features": FEATURES, "positions": POSITIONS, "cases": cases}


def _lists(tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: each.tolist() for name, each in tensors.items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")
