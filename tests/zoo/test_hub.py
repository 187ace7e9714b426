"""hubconf.py in a checkout, by torch.hub's own functions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rskip.connections import XSkip
from rskip.translation import Translator
from rskip.zoo.registry import read_registry

TRANSLATOR = "transformer_tiny_2rskip_ln.multi30k.en-de"


def test_model_of_a_checkout(root: Path) -> None:
    translator = torch.hub.load(str(root), TRANSLATOR, source="local", device="cpu", dtype=torch.float32)
    assert isinstance(translator, Translator)
    assert translator("A man is sleeping.") == "Ein Mann schläft."


def test_the_demo_ends_with_real_sentences_translated(root: Path, environment: Callable[..., dict[str, str]]) -> None:
    command = [sys.executable, root / "scripts/translate_with_hub.py"]
    process = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert "  Two dogs are playing in the snow.\n    Zwei Hunde spielen im Schnee.\n" in process.stdout


def test_mistake_is_one_line(root: Path) -> None:
    with pytest.raises(ValueError, match=r"^the device 'gpu' can't be used, try cpu: [^\n]+$"):
        torch.hub.load(str(root), TRANSLATOR, source="local", device="gpu")


def test_a_clones_models_are_its_own_whichever_rskip_is_imported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.zoo.registry.registry_file", lambda: pytest.fail("looks beside the imported rskip"))
    monkeypatch.setattr("rskip.zoo.loading.registry_file", lambda: pytest.fail("looks beside the imported rskip"))
    translator = torch.hub.load(str(root), TRANSLATOR, source="local")
    assert translator("Two dogs are playing in the snow.") == "Zwei Hunde spielen im Schnee."


def test_dependencies_come_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.zoo.hub.load_entry", lambda *args, **settings: pytest.fail("loads"))
    monkeypatch.setattr(torch.hub, "_check_module_exists", lambda name: name not in ("sacremoses", "subword_nmt"))
    with pytest.raises(RuntimeError, match="^Missing dependencies: sacremoses, subword_nmt$"):
        torch.hub.load(str(root), TRANSLATOR, source="local")


def test_too_old_python_and_windows_come_before_everything(root: Path) -> None:
    for name, value, told in (
        ("version_info", (3, 9, 18), "rskip needs Python 3.10 or newer, and this is Python 3.9"),
        ("platform", "win32", "rskip needs Linux, and this is Windows: use the Windows Subsystem for Linux (WSL)"),
    ):
        code = f"import sys; sys.{name} = {value!r}; exec(open({str(root / 'hubconf.py')!r}).read())"
        process = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
        assert process.stderr.splitlines()[-1] == f"RuntimeError: {told}"


def test_every_entry_tells_what_it_is(root: Path) -> None:
    hubconf = torch.hub._import_module("hubconf", root / "hubconf.py")
    for name, entry in read_registry().items():
        told = getattr(hubconf, name).__doc__
        figure = entry.figures[0]
        for part in (name, entry.task, entry.connection, entry.licence, entry.data_terms, f"{figure.value:.2f}"):
            assert part in told


def test_transformer_without_weights(root: Path) -> None:
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "encoder_embed_dim": 8, "decoder_embed_dim": 8}
    model = torch.hub.load(str(root), "transformer", 10, 12, connection="3xskip", source="local", **sizes)
    assert (model.config.encoder_connection, model.config.decoder_connection) == ("3xskip", "3xskip")
    assert len(model.encoder.layers) == 1 and len(model.decoder.layers) == 2
    assert isinstance(model.decoder.layers[1].encoder_attn_connection, XSkip)
    with pytest.raises(ValueError, match="unknown key 'encoder_layer' .*: did you mean 'encoder_layers'"):
        torch.hub.load(str(root), "transformer", 10, 12, source="local", encoder_layer=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_vocabulary": 0}, "^source_vocabulary=0: expected more than padding_index=1$"),
        ({"target_vocabulary": "10"}, "^target_vocabulary='10': expected int$"),
        ({"encoder_layers": 2.0}, "^encoder_layers=2.0: expected int$"),
        ({"dropout": "a"}, "^dropout='a': expected float$"),
        ({"share_all_embeddings": 1}, "^share_all_embeddings=1: expected bool$"),
    ],
)
def test_wrong_setting_of_a_transformer_is_one_line(root: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch.hub.load(
            str(root), "transformer", source="local", **{"source_vocabulary": 20, "target_vocabulary": 20, **settings}
        )


def test_preact_resnet_without_weights(root: Path) -> None:
    model = torch.hub.load(str(root), "preact_resnet", 14, connection="2RSKIP+LN", num_classes=100, source="local")
    assert model.config == {
        "depth": 14, "connection": "2rskip+ln", "num_classes": 100, "shortcut": "zero_pad", "block": "basic",
    }  # fmt: skip
    with pytest.raises(ValueError, match="14"):
        torch.hub.load(str(root), "preact_resnet", 15, source="local")


PARALLEL = """
import sys
clone, root, name = sys.argv[1:]
sys.path = [folder for folder in sys.path if folder != root]  # where tests run, rskip is installed
import torch
translator = torch.hub.load(clone, name, source="local")
with translator.parallel(1) as workers:
    print(workers("A man is sleeping."))
"""


@pytest.mark.slow
def test_worker_processes_find_rskip_where_it_is_not_installed(
    clone: Path, root: Path, environment: Callable[..., dict[str, str]]
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PARALLEL, str(clone), str(root), TRANSLATOR],
        cwd=clone.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.stdout == "Ein Mann schläft.\n", process.stderr
