"""The class of an adapted Hugging Face model, with its saving and loading, and its weight decay in the Trainer."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, wraps
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from rskip.connections import HOST_NEEDS, StackConnection, build_stack_connection, parse_connection
from rskip.connections.connection import Resettable
from rskip.connections.linear import LinearMap
from rskip.connections.norms import Normalisation
from rskip.nn.adapted import AdaptedBlock
from rskip.nn.residuals import Residual, no_weight_decay
from rskip.settings.errors import SettingError

SPEC, BLOCKS = "rskip_connection", "rskip_blocks"  # in a model's config: the connection, and the blocks' names
_OF_BOTH_STACKS = ("askip", "deepnorm")  # their factors depend on the number of layers in the other stack too
# Modules that set their own initial values. transformers skips those that have no tensors outside their members.
_INITIALISED = (Resettable, Normalisation, LinearMap)


class AdaptedModel:
    """The part of an adapted Hugging Face model that its library's class does not have.

    Its config contains the spec and the blocks' names, so `type(model).from_pretrained(folder)` and
    `type(model)(config)` are adapted too.
    """

    config: Any
    modules: Callable[[], Iterator[nn.Module]]

    def __init__(self, config: Any, *args: Any, example: Any = None, **settings: Any) -> None:
        from rskip.nn.adapting import adapt

        spec = getattr(config, SPEC, None)
        if spec is None:
            advice = "load it with its library's class, then call rskip.adapt"
            raise SettingError("model", f"has no {SPEC} in its config", advice=advice)
        paired = getattr(config, "is_encoder_decoder", False)  # an encoder's class turns it off
        super().__init__(config, *args, **settings)  # type: ignore[call-arg]
        loaded = torch.empty(0).is_meta  # from_pretrained loads the values later
        names = getattr(config, BLOCKS, ())
        blocks = _named_blocks(self, names) or None
        alone = blocks is not None and len(blocks) < len(names)
        if paired and alone and parse_connection(spec).family in _OF_BOTH_STACKS:
            problem = f"has one stack of the saved model, and {spec} depends on the layers of both"
            raise SettingError("model", problem, advice="load the whole model, and take its encoder")
        adapt(self, spec, blocks=blocks, example=example, host_supplies=HOST_NEEDS if loaded else ())  # type: ignore[type-var]
        if loaded:
            for each in self.modules():
                if isinstance(each, Residual):
                    each.mark_loaded()

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **settings: Any) -> Any:
        """The library's method. It refuses weights whose connections are in other blocks."""
        model, info = super().from_pretrained(*args, output_loading_info=True, **settings)  # type: ignore[misc]
        found = (key.partition(".residuals.") for key in sorted((*info["missing_keys"], *info["unexpected_keys"])))
        names = dict(model.named_modules())
        if owner := next((owner for owner, residuals, _ in found if residuals and owner in names), None):
            problem = f"and the folder's weights don't have connections in the same blocks: {owner}"
            raise SettingError("model", problem, advice="pass from_pretrained the example= with which it was adapted")
        return (model, info) if output_loading_info else model

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[misc]
        init_missing(module)

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Any = None, **settings: Any
    ) -> None:
        if enable:
            _check_checkpoints(getattr(self.config, SPEC), gradient_checkpointing_func)
        if gradient_checkpointing_func is not None:
            settings["gradient_checkpointing_func"] = gradient_checkpointing_func
        super()._set_gradient_checkpointing(enable, **settings)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new_model, (type(self).__bases__[1],), self.__dict__


def init_missing(module: nn.Module) -> None:
    """Gives a connection's tensors their initial values, except those that `from_pretrained` has loaded.

    Call it in `_init_weights` of your own PreTrainedModel, which gets every module of the model. It does nothing for
    modules of other kinds. transformers marks the loaded tensors.
    """
    if not isinstance(module, _INITIALISED):
        return
    tensors = [*module.parameters(), *module.buffers()]
    loaded = [each for each in tensors if getattr(each, "_is_hf_initialized", False)]
    if len(loaded) < len(tensors):
        values = [each.detach().clone() for each in loaded]
        module.reset_parameters()
        with torch.no_grad():
            for tensor, value in zip(loaded, values, strict=True):
                tensor.copy_(value)


def from_pretrained(kind: type, folder: Any, *, example: Any = None, **settings: Any) -> Any:
    """Loads an adapted Hugging Face model that `save_pretrained` wrote.

    The library's own class refuses such a folder, because the shapes do not match.

    :param kind: the library's class or one of its Auto classes, such as `AutoModelForCausalLM`.
    :param folder: folder, or name on the Hub.
    :param example: what the model takes, as for `rskip.adapt`; None: tokens, images or features.
    :param settings: passed to the class's `from_pretrained`.
    :raises SettingError: the saved model is not adapted, or the folder does not exist.
    """
    if not (os.path.isdir(folder) or re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(folder))):
        expected = "an existing folder, or a name on the Hub such as owner/model"
        raise SettingError.of_value("folder", folder, expected)
    transformers = import_module("transformers")
    if not issubclass(kind, transformers.PreTrainedModel):
        find_class = import_module("transformers.models.auto.auto_factory")._get_model_class
        config = settings.get("config") or transformers.AutoConfig.from_pretrained(folder, **settings)
        kind = find_class(config, kind._model_mapping)  # type: ignore[attr-defined]
    more = {} if example is None else {"example": example}
    return adapted_model_class(kind).from_pretrained(folder, **settings, **more)  # type: ignore[attr-defined]


@cache
def adapted_model_class(kind: type) -> type:
    """The class of an adapted model. It keeps the library's name, which is written into configs and looked up."""
    if issubclass(kind, AdaptedModel):
        return kind
    _leave_out_of_decay()
    return type(kind.__name__, (AdaptedModel, kind), {"__module__": kind.__module__})


@cache
def _leave_out_of_decay() -> None:
    """Makes the Trainer give no weight decay to what `no_weight_decay` names. It goes by names, and asks no model."""
    names_of_library = import_module("transformers.trainer_pt_utils").get_parameter_names

    @wraps(names_of_library)
    def get_parameter_names(model: nn.Module, *args: Any, **settings: Any) -> list[str]:
        left_out = no_weight_decay(model)
        return [name for name in names_of_library(model, *args, **settings) if name not in left_out]

    for name in {"transformers.trainer_pt_utils", "transformers.trainer"} & sys.modules.keys():
        trainer: Any = sys.modules[name]
        trainer.get_parameter_names = get_parameter_names


def check_model(model: nn.Module, spec: str) -> None:
    """Raises SettingError if its config names another connection, or if its layers or checkpoints don't allow this."""
    for module in model.modules():
        stored = getattr(getattr(module, "config", None), SPEC, spec)
        if stored != spec:
            expected = f"{stored}, which the model's config names"
            raise SettingError.of_value("connection", spec, expected, advice=f"change or remove config.{SPEC}")
        if getattr(module, "gradient_checkpointing", False):
            _check_checkpoints(spec, getattr(module, "_gradient_checkpointing_func", None))
        if getattr(vars(module).get("_hf_hook"), "offload", False):
            problem = "has weights that accelerate offloads"
            raise SettingError("model", problem, advice="load it without offloading, adapt it, then offload it")
        if type(module).__module__.partition(".")[0] == "peft":
            advice = "adapt the model first, then pass it to peft"
            raise SettingError("model", "has peft adapters, which would be saved without the connection", advice=advice)


def _named_blocks(model: Any, names: Sequence[str]) -> list[nn.Module]:
    """The blocks with these names, which are those in a model around this one if it was saved alone."""
    own = {name.removeprefix(f"{model.base_model_prefix}."): module for name, module in model.named_modules()}
    found = [own[name] for name in names if name in own]
    return found or [own[name] for name in own if name and any(each.endswith(f".{name}") for each in names)]


class Unmasked(TorchFunctionMode):
    """Answers each condition on the meta device, whose tensors have no values, with yes: masks hide nothing."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.__bool__, torch.Tensor.item) and args[0].is_meta and args[0].dtype == torch.bool:
            return True
        return function(*args, **(kwargs or {}))


def finish(model: nn.Module, spec: str, undo: ExitStack) -> None:
    """Writes spec and blocks into the config and changes the class of each model that has adapted blocks.

    :param undo: gets what takes the changes back.
    """
    if "transformers" not in sys.modules:
        return
    library_model = sys.modules["transformers"].PreTrainedModel
    for module in list(model.modules()):
        blocks = [name for name, each in module.named_modules() if isinstance(each, AdaptedBlock)]
        if not blocks or not isinstance(module, library_model):
            continue
        if not hasattr(module.config, SPEC):  # its inner models may have the same config
            names = [name.removeprefix(f"{module.base_model_prefix}.") for name in blocks]
            for key, value in ((SPEC, spec), (BLOCKS, names)):
                undo.callback(delattr, module.config, key)
                setattr(module.config, key, value)
        if not isinstance(module, AdaptedModel):
            kind: Any = type(module)
            undo.callback(setattr, module, "__class__", kind)
            module.__class__ = adapted_model_class(kind)
        inner = [each for each in module.modules() if isinstance(each, library_model) and each is not module]
        if not any(isinstance(each, AdaptedBlock) for model in inner for each in model.modules()):
            undo.callback(module.register_forward_hook(_leave_hidden_states, with_kwargs=True).remove)


def _leave_hidden_states(model: Any, args: Any, settings: dict[str, Any], output: Any) -> Any:
    """Makes each of `hidden_states` one tensor: the stack's output if it ended there, without the closing norm."""
    has_states: bool = isinstance(output, dict) and output.get("hidden_states") is not None
    if not (has_states or isinstance(output, tuple)):
        return output
    stacks = []
    for block in model.modules():
        stack = block.__dict__.get("rskip_closing")
        if stack is not None and type(stack) is not StackConnection:
            features = next(iter(block.residuals.children())).connection.features
            dims = block.rskip_route.dims if "rskip_route" in vars(block) else 3  # a model that carries streams
            stacks.append((stack, _form(stack.enter(torch.zeros(*[1] * (dims - 1), features)))))
    if not stacks:
        return output
    if isinstance(output, tuple):
        if settings.get("output_hidden_states", model.config.output_hidden_states):
            expected = "return_dict=True, since this connection's hidden states consist of several tensors"
            raise SettingError.of_value("return_dict", False, expected)
    else:
        output.hidden_states = _left(output["hidden_states"], stacks)
    return output


def _left(state: Any, stacks: Sequence[tuple[StackConnection, tuple[int, ...]]]) -> Any:
    """One tensor for each state of a stack. What a stack or a stage has returned is one already."""
    if isinstance(state, tuple):
        return tuple(_left(each, stacks) for each in state)
    stack = next((stack for stack, form in stacks if state is not None and form == _form(state)), None)
    if stack is None:
        return state
    return stack.leave(tuple(state) if isinstance(state, list) else state)


def _form(state: Any) -> tuple[int, ...]:
    """The dimensions in which a connection's states differ from other tensors."""
    if isinstance(state, (list, tuple)):
        return (state[0].shape[-1],)
    return state.dim(), *state.shape[-2:]


def _check_checkpoints(spec: str, function: Any) -> None:
    """Refuses reentrant checkpoints for states of several tensors, because gradients would be lost."""
    state = build_stack_connection(spec, 8).enter(torch.zeros(1, 1, 8))
    if getattr(function, "keywords", {}).get("use_reentrant", True) and isinstance(state, tuple):
        problem = f"{spec} loses gradients in reentrant checkpoints"
        advice = "pass gradient_checkpointing_kwargs={'use_reentrant': False}"
        raise SettingError("gradient checkpointing", problem, advice=advice)


def _new_model(library_class: type) -> Any:
    """An empty adapted model, which pickle fills."""
    kind: Any = adapted_model_class(library_class)
    return kind.__new__(kind)
