"""Named architectures, [captioning_]transformer_<connection>_<size>, such as `--arch transformer_rskip_ln_tiny`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import MISSING, fields

from fairseq.models import register_model_architecture

from rskip.captioning.config import CaptioningConfig
from rskip.captioning.fairseq import model as captioning_model
from rskip.fairseq_plugin import model
from rskip.fairseq_plugin.flags import OF_DATA, check_flags
from rskip.transformer import TransformerConfig
from rskip.transformer.architectures import CONNECTIONS, SIZES, Size, architecture
from rskip.transformer.config import StackConfig

# Captioning has fewer: those of SAS Table 5 and this project's own.
CAPTIONING_CONNECTIONS = ("skip_ln", "rskip_ln", "sas")
CAPTIONING_SIZES = {"": SIZES["base"], "_small": SIZES["small"], "_tiny": Size(256, 512, 4, 2)}


def _architecture(kind: type[StackConfig], connection: str, size: Size) -> Callable[[Namespace], None]:
    features, inner_features, heads, layers = size

    def fill_in(args: Namespace) -> None:
        """Sets defaults for unset flags. It is idempotent: fairseq calls it again when it loads a checkpoint."""

        def default(name: str, value: object) -> None:
            if getattr(args, name, None) is None:
                setattr(args, name, value)

        for side in ("encoder", "decoder"):
            default(f"{side}_embed_dim", features if side == "encoder" else args.encoder_embed_dim)
            default(f"{side}_ffn_embed_dim", inner_features if side == "encoder" else args.encoder_ffn_embed_dim)
            default(f"{side}_attention_heads", heads)
            default(f"{side}_layers", layers)
        default("connection", connection)
        not_defaulted = (*OF_DATA[kind], "encoder_connection", "decoder_connection")  # by data and --connection
        for field in fields(kind):
            if field.default is not MISSING and field.name not in not_defaulted:
                default(field.name, field.default)
        check_flags(args, kind)

    return fill_in


for _name, _spec in CONNECTIONS.items():
    for _size in SIZES:
        _fill_in = _architecture(TransformerConfig, _spec, SIZES[_size])
        register_model_architecture(model.MODEL_NAME, architecture(_name, _size))(_fill_in)

for _name in CAPTIONING_CONNECTIONS:
    for _suffix, _of_captioning in CAPTIONING_SIZES.items():
        _arch = f"captioning_transformer_{_name}{_suffix}"
        _fill_in = _architecture(CaptioningConfig, CONNECTIONS[_name], _of_captioning)
        register_model_architecture(captioning_model.MODEL_NAME, _arch)(_fill_in)
