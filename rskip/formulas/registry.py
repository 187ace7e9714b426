"""The registry of connection families that a spec can name, with the properties of each. It needs no PyTorch."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from rskip.formulas.parameters import Factor, Option, OptionValue, documented, read_parameters
from rskip.formulas.place import Place
from rskip.formulas.terms import Formula, Settings, X
from rskip.formulas.text import text_of
from rskip.settings.errors import SettingError, did_you_mean, nearest
from rskip.settings.paper import Paper

Class = TypeVar("Class", bound=type)

# The first and the last block of a stack: a family's formula may depend on the position.
_EXAMPLES = (Place("encoder", "self_attn", 1, 24, 1, 12, 12), Place("encoder", "ffn", 24, 24, 12, 12, 12))


class UnknownFamily(SettingError):
    """A spec names a family that is not registered."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of connections: the class that states or computes it, and what a spec may contain.

    Everything else is read from the class: its constructor (`parameters.py`) and attributes, which are those of
    `rskip.connections.Connection`.

    :param source: the source of the formula and of every option, for readers.
    :param paper: the paper that introduced it, for model cards.
    :param factor: the λ; None: it takes none.
    :param norms: what may follow the `+`; None: nothing. `default_norm` is meant if nothing follows.
    :param options: the options by name.
    :param takes_place: whether the class takes `place`, a Place; needs_place: whether it takes it without a default.
    """

    name: str
    connection: type[Any]
    source: str
    paper: Paper
    factor: Factor | None = None
    norms: tuple[str | None, ...] = (None,)
    default_norm: str | None = None
    options: Mapping[str, Option]
    takes_place: bool = False
    needs_place: bool = False

    @cached_property
    def is_formula(self) -> bool:
        """Whether the class states terms."""
        return issubclass(self.connection, Formula)

    def formulas(self, settings: Settings) -> list[Formula]:
        """The terms with these settings in a first and in a last block; none if the class has no terms."""
        if not self.is_formula:
            return []
        places = [{"place": place} for place in _EXAMPLES] if self.needs_place else [{}]
        return [self.connection(**settings, **place) for place in places]

    def settings_of(
        self, factor: float | None, norm: str | None, options: Iterable[tuple[str, OptionValue]]
    ) -> dict[str, Any]:
        """The constructor's arguments for the parts of a spec."""
        found: dict[str, Any] = {name: option.default for name, option in self.options.items()} | dict(options)
        if self.factor is not None:
            found[self.factor.word] = factor
        return found if self.norms == (None,) else found | {"norm": norm}

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments for an example: λ = 2, layer normalisation and the default options."""
        return self.settings_of(2, "ln" if "ln" in self.norms else self.default_norm, ())

    @cached_property
    def formula(self) -> str:
        """y in terms of x and f, for an example (`formula_of`)."""
        return self.formula_of(self.settings)

    def formula_of(self, settings: Settings) -> str:
        """y in terms of x and f with these settings.

        It follows from the terms. Without terms, or if they differ from block to block or within the branch, it is the
        first paragraph of the class's docstring.
        """
        found, closed = self.formulas(settings), self.closes(settings)
        opens = None if self.connection.stack is None or not found else self.connection.stack(norm=settings["norm"])
        texts = {text_of(each, opens, closed=closed) for each in found}
        if len(texts) == 1 and not any(each.inner_norms or each.scales_heads for each in found):
            return texts.pop()
        stated = documented(self.connection).split("\n\n")[0].replace("\n", " ").replace("y = ", "").removesuffix(".")
        return stated + "; one normalisation closes the stack" * (closed and bool(stated))

    def closes(self, settings: Settings) -> bool:
        """Whether a normalisation closes a stack of blocks with these settings."""
        closing = self.connection.closing_norm
        if isinstance(closing, tuple):
            closing = settings[closing[0]] == closing[1]
        return bool(closing) and settings.get("norm") is not None

    @property
    def passes(self) -> Literal["x", "streams", "history"]:
        """What blocks pass on: one tensor; several tensors; or several that include earlier layers' outputs."""
        if self.is_formula:
            return "streams" if self.formulas(self.settings)[0].becomes else "x"
        if self.connection.reads_earlier_layers:
            return "history"
        own_state = self.connection.passes_x is not True and self.connection.overrides("before", "after")
        return "streams" if own_state else "x"

    def works_on_images(self, settings: Settings) -> bool:
        """Whether it works on feature maps of ResNets with these settings, not only on sequences."""
        cls = self.connection
        if self.passes != "x" or cls.text_only or cls.needs_profile:
            return False
        reads_x = not any(formula.reads != X for formula in self.formulas(settings))
        return not self.closes(settings) or (reads_x and (self.is_formula or not cls.overrides("branch_input")))

    @property
    def works_on(self) -> tuple[str, ...]:
        """("text",) or ("text", "images"): sequences, such as text or a ViT's patches, and feature maps of ResNets.

        Images are included if any spec of the family works on them.
        """
        norms = [{"norm": norm} for norm in self.norms] if self.norms != (None,) else [{}]
        images = any(self.works_on_images({**self.settings, **norm}) for norm in norms)
        return ("text", "images") if images else ("text",)

    @property
    def needs_profile(self) -> bool:
        """Whether a pass over data sets its initial values."""
        return bool(self.connection.needs_profile)

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs in addition to x and f, out of "place", "branch", "profile", "streams" and "history"."""
        inside = any(formula.inner_norms or formula.scales_heads for formula in self.formulas(self.settings))
        inside = inside or (not self.is_formula and self.connection.overrides("inner_norms", "scales_heads"))
        needs = {"place": self.needs_place, "branch": inside, "profile": self.connection.needs_profile}
        passed = () if self.passes == "x" else (self.passes,)
        return tuple(name for name, needed in needs.items() if needed) + passed


_families: dict[str, Family] = {}

# Published weights use these names. A user's class may take any other name: the class may be older than our family.
_KEPT = ("highway", "prenorm", "rskip", "sas", "wskip", "xskip")
_OWN = __name__.partition(".")[0] + "."
# Models and their connections; the first ones of a name are what the name without a version means.
MODELS = {
    "Transformer (2017), BERT": "1xskip+ln",
    "GPT-2, ViT": "prenorm+ln",
    "Llama, Qwen3": "prenorm+rms",
    "ResNet": "1xskip",
    "DeepSeek-V4": "mhc+rms:exit=head,gate_eps=1e-06,start=deepseek",
    "DeepSeek-V4.1": "mhc+rms:gate_eps=1e-06,reads=previous,start=deepseek",
    "GLM-5.3-Flash": "mhc+rms:exit=mean,gate_eps=1e-06,start=deepseek",
    "Hy4": "mhc+rms:exit=head,gate_eps=1e-06,residual=identity,start=hy4",
    "Qwen4-Exp": "gated_residual:rank=320",
    "Kimi K3": "attnres+rms:layers=12,queries=3",
    "Inkling 2": "attnres+rms:layers=6,queries=3,values=rms",
    "nanochat": "x0+rms:backout=true",
    "modded-nanogpt (February 2026)": "lanes+rms",
}
# what people call a connection elsewhere, and its spec
_USUAL_NAMES = {
    **dict.fromkeys(("post", "postln", "postnorm"), "1xskip+ln"),
    **dict.fromkeys(("pre", "preln", "prelayernorm"), "prenorm+ln"),
    **dict.fromkeys(("identity", "plain", "residual"), "1xskip"),
    **dict.fromkeys(("hyperconnections", "hyperconnection", "hc"), "hyper"),
    **dict.fromkeys(("manifoldconstrainedhyperconnections", "manifoldhyperconnections"), "mhc"),
    **dict.fromkeys(("attentionresiduals", "attentionresidual", "attnresiduals"), "attnres"),
}


def usual_spec(name: str) -> str | None:
    """The spec of what people call by this name: a connection, or a model, whose version may be left out."""
    plain = _plain(name)
    models = [(_plain(model), spec) for names, spec in MODELS.items() for model in names.split(", ")]
    named = (spec for model, spec in models if len(plain) > 2 and model.startswith(plain))
    return _USUAL_NAMES.get(plain) or next(named, None)


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def register_connection(name: str, *, source: str, paper: Paper | None = None) -> Callable[[Class], Class]:
    """Class decorator that registers a `Formula` or a `Connection` under a name for specs.

    The class's docstring is for readers, too: `:param` explains an option, and the first paragraph states y if the
    class has no terms.

    The same class may be registered again, because its module may be imported twice. Your own class may replace one of
    rskip's families unless published weights use that family.

    :param name: lower-case letters, digits and underscores, a letter first.
    :param source: the source of the formula and of every option, for readers.
    :param paper: the paper for model cards; None: `source`. Those of rskip's own families are in papers.tsv.
    :raises ValueError: another class has the name, or the name or the annotation of `norm` is not valid.
    """

    def register(cls: Class) -> Class:
        owner = _path(_families[name].connection) if name in _families else None
        replaceable = owner is None or (owner.startswith(_OWN) and name not in _KEPT)
        if not replaceable and owner != _path(cls):
            raise ValueError(f"connection {name!r} is taken by {owner}; choose another name for {_path(cls)}")
        parameters = read_parameters(cls)
        if not re.fullmatch(r"(?!e\d)[a-z][a-z0-9_]*" if "factor" in parameters else "[a-z][a-z0-9_]*", name):
            expected = "lower-case letters, digits and underscores, a letter first; with a factor not e and a digit"
            raise SettingError.of_value("name of the connection", name, expected)
        known = _papers().get(name) if _path(cls).startswith(_OWN) else None
        of_cards = paper or known or Paper(source.strip() or name, None, None)
        _families[name] = Family(name=name, connection=cls, source=source, paper=of_cards, **parameters)
        return cls

    return register


def list_connections() -> list[Family]:
    """All registered families, sorted by name."""
    return [_families[name] for name in sorted(_families)]


def find_family(name: str, *, before: str = "", after: str = "") -> Family:
    """Finds a family by its name.

    :param before: the part of the spec before the name, for the error message; `after` likewise.
    :raises UnknownFamily: it does not exist. The error is named `connection` and suggests the nearest known family.
    """
    if name not in _families:
        near = nearest(name, _families)
        factor = before if near and _families[near[0]].factor else ""
        suggestion = did_you_mean(name, near, before=factor, after=after)
        if usual := usual_spec(name):
            suggestion = f" (did you mean {usual!r}?)"
        expected = "a connection from docs/connection_details.md" + (suggestion or ", such as 2rskip+ln")
        advice = "if it is your own, import its module or give --user-dir"
        raise UnknownFamily.of_value("connection", before + name + after, expected, advice=advice)
    return _families[name]


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@cache
def _papers() -> dict[str, Paper]:
    """The papers of rskip's own families."""
    with Path(__file__).with_name("papers.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["connection"]: Paper(row["title"], row["authors"], row["url"], row["part"] or None) for row in rows}
