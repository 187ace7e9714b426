"""`--task rskip_translation`: fairseq's translation task with our beam search."""

# No postponed annotations here: fairseq reads a configuration's types, not their names.
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Optional, get_args

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_compat.one_line_errors import UsageError
from rskip.cpu.precision import PRECISIONS
from rskip.fairseq_plugin.generator import BeamSearchGenerator, Transformers
from rskip.fairseq_plugin.usage_errors import flag_of, usage_errors
from rskip.generation import SearchOptions
from rskip.generation.options import LengthPenaltyKind

TASK_NAME = "rskip_translation"

# Our settings, and fairseq's flags for them.
_FLAGS = {
    "beam": "beam",
    "length_penalty": "lenpen",
    "min_length": "min_len",
    "max_length_a": "max_len_a",
    "max_length_b": "max_len_b",
    "unknown_penalty": "unkpen",
    "temperature": "temperature",
    "no_repeat_ngram": "no_repeat_ngram_size",
    "sampling": "sampling",
    "top_k": "sampling_topk",
    "top_p": "sampling_topp",
}
# Other supported settings, applied here or by fairseq's programs.
_DONE_ELSEWHERE = {
    "match_source_len", "print_alignment", "score_reference", "unnormalized",
    "nbest", "no_beamable_mm", "no_early_stop", "no_seed_provided", "prefix_size", "replace_unk", "sacrebleu",
}  # fmt: skip


@dataclass
class TranslationTaskConfig(TranslationConfig):
    """Fairseq's flags for translation, and for generation the number format and the kind of length penalty."""

    precision: Optional[ChoiceEnum(PRECISIONS)] = field(  # type: ignore[valid-type]  # noqa: UP045
        default=None,
        metadata={"help": "number format of fairseq-generate and fairseq-interactive (default: the model's)"},
    )
    length_penalty_kind: ChoiceEnum(get_args(LengthPenaltyKind)) = field(  # type: ignore[valid-type]
        default="fairseq",
        metadata={"help": "base of the exponent --lenpen: the length n (fairseq) or (5+n)/6 (gnmt; papers with 0.6)"},
    )


@register_task(TASK_NAME, dataclass=TranslationTaskConfig)
class BeamSearchTranslationTask(TranslationTask):
    """Fairseq's `translation` with rskip's beam search, for rskip's models and fairseq's own `transformer`. The same
    flags give the same hypotheses; sampling draws from the same distribution."""

    def __init__(self, cfg: TranslationTaskConfig, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self._transformers = Transformers(None if cfg.precision is None else str(cfg.precision))
        self._length_penalty_kind = str(cfg.length_penalty_kind)

    def build_generator(
        self,
        models: Sequence[Any],
        args: Any,
        seq_gen_cls: Optional[Callable] = None,  # noqa: UP045
        extra_gen_cls_kwargs: Optional[dict[str, Any]] = None,  # noqa: UP045
        prefix_allowed_tokens_fn: Optional[Callable] = None,  # noqa: UP045
    ) -> Any:
        """Builds the generator for `fairseq_cli` and the hub interface. `args` are fairseq's settings for generation.

        With --score-reference it is fairseq's own scorer. Raises `UsageError` for a setting that our search lacks.
        """
        if getattr(args, "score_reference", False):
            return super().build_generator(models, args)
        extra = {"seq_gen_cls": seq_gen_cls, "prefix_allowed_tokens_fn": prefix_allowed_tokens_fn}
        extra |= extra_gen_cls_kwargs or {}
        for name, value in extra.items():
            if value:
                raise _refusal(name)
        printed = getattr(args, "print_alignment", None)
        matches = getattr(args, "match_source_len", False)
        options = replace(search_options(args), length_penalty_kind=self._length_penalty_kind)  # type: ignore[arg-type]
        if options.sampling and matches:
            raise UsageError("--sampling and --match-source-len: give only one of them")
        return BeamSearchGenerator(
            models,
            self.target_dictionary,
            self._transformers,
            options,
            alignment=("soft" if printed == "soft" else "hard") if printed else None,
            match_source_length=matches,
        )


def search_options(args: Any) -> SearchOptions:
    """Converts fairseq's settings for generation to ours. Settings that `args` lack have fairseq's default.

    Raises `UsageError` for a setting that our search lacks, or an invalid value.
    """
    defaults: dict[str, Any] = {each.name: each.default for each in fields(GenerationConfig)}
    settings = {name: getattr(args, name, default) for name, default in defaults.items()}
    for name in sorted(defaults.keys() - _DONE_ELSEWHERE - set(_FLAGS.values())):
        if settings[name] != defaults[name]:
            raise _refusal(flag_of(name))
    values = {name: settings[flag] for name, flag in _FLAGS.items()}
    if settings["unnormalized"]:
        values["length_penalty"] = 0.0
    values["top_p"] = min(values["top_p"], 1.0) if values["top_p"] > 0 else 1.0
    values["top_k"] = values["top_k"] if values["top_k"] > 0 and values["top_p"] == 1 else 0
    with usage_errors(named=_FLAGS):
        return SearchOptions(**values)


def _refusal(setting: str) -> UsageError:
    return UsageError(f"{setting} is not supported by --task {TASK_NAME}: leave it out, or use --task translation")
