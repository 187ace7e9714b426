"""Loads the models that a server serves, and finds the one for a request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import PurePath

from rskip.extras import MissingExtra, advice
from rskip.serving.errors import RequestError, wrong_request
from rskip.settings.errors import SettingError, did_you_mean, first_names, shown
from rskip.text.language_codes import group_members, language_name, of_same_language
from rskip.text.languages import MissingLanguage
from rskip.translation import Translator
from rskip.zoo.loading import load

Languages = tuple[str | None, str | None]  # source and target
_PAIRS_KEPT = 256  # translators of a multilingual model


@dataclass(frozen=True)
class ServedModel:
    """A model under the name that requests use.

    must_name: whether a request has to name the source and the target language.

    sources, targets: the languages that the server offers, each with the model's code for it. The languages of a group,
        such as ROMANCE, stand for it as a source.
    """

    name: str
    model: Translator = field(compare=False)
    must_name: tuple[bool, bool] = (False, False)

    @cached_property
    def sources(self) -> dict[str, str]:
        return {each: code for code in self._all(0) for each in group_members(code) or [code]}

    @cached_property
    def targets(self) -> dict[str, str]:
        languages = self.model.tokenizer.languages  # a group has no token, and is no target
        return {code: code for code in ([self.model.target_language] if languages is None else languages.codes)}

    def codes(self, source: str | None, target: str | None) -> Languages:
        """The model's codes for these languages. None: not given, or the model lacks it."""
        sides = ((source, self.sources, self._all(0)), (target, self.targets, self._all(1)))
        found = [code if code in own else listed.get(_same(code, listed) or "") for code, listed, own in sides]
        return found[0], found[1]

    def _all(self, side: int) -> Sequence[str]:
        languages = self.model.tokenizer.languages
        if languages is None:
            return [(self.model.source_language, self.model.target_language)[side]]
        return (languages.all_sources, languages.targets)[side]


class Models:
    """Models by name. The first model that fits is the default of a request that names none."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = {each.name: each for each in models}
        self._between = lru_cache(_PAIRS_KEPT)(lambda name, *pair: self._models[name].model.between(*pair))

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def _candidates(self, name: str | None) -> list[ServedModel]:
        """The model of this name; None: all models.

        :raises RequestError: there is no such model.
        """
        if name is None:
            return [*self]
        if name not in self._models:
            near = did_you_mean(name, self._models)
            raise RequestError(404, f"no model is called {shown(name)}{near}: expected {', '.join(self._models)}")
        return [self._models[name]]

    def translator(self, name: str | None, source: str | None, target: str | None) -> tuple[str, Translator]:
        """The name and the translator of the first model that translates between the languages.

        :param name: the model; None: any.
        :param source, target: codes of the model, or two-letter codes; None: the model's own.
        :raises RequestError: no model translates between them, or a multilingual model needs a language.
        """
        unnamed = ""
        for each in self._candidates(name):
            pair = each.codes(source, target)
            if (source is not None and pair[0] is None) or (target is not None and pair[1] is None):
                continue
            sides = zip(("source", "target"), each.must_name, pair, strict=True)
            if missing := [side for side, needed, code in sides if needed and code is None]:
                unnamed = unnamed or f"the model {each.name} is multilingual: give {' and '.join(missing)}"
                continue
            given = source is not None or target is not None
            if given and (pair[0] or each.model.source_language) == (pair[1] or each.model.target_language):
                continue
            try:
                return each.name, self._between(each.name, *pair)
            except SettingError as error:
                raise wrong_request(error) from None
        asked = "" if name is None else f"; the request names the model {name}"
        raise RequestError(400, unnamed or _no_pair(source, target, self.directions()) + asked)

    def directions(self, name: str | None = None) -> dict[str, list[str]]:
        """The target languages of each source language, for one model or all.

        :raises RequestError: there is no such model.
        """
        found: dict[str, dict[str, None]] = {}
        for each in self._candidates(name):
            for source in each.sources:
                found.setdefault(source, {}).update(dict.fromkeys(code for code in each.targets if code != source))
        return {source: [*targets] for source, targets in found.items()}

    def same_language(self, source: str, target: str) -> bool:
        """Whether both are codes of one language that the models know."""
        directions = self.directions()
        known = [*dict.fromkeys([*directions, *(code for targets in directions.values() for code in targets)])]
        return _same(source, known) == _same(target, known) is not None


def _same(code: str | None, known: Collection[str]) -> str | None:
    """The known code for a language."""
    if code is None or code in known:
        return code
    return next(iter(of_same_language(code, known)), None)


def _no_pair(source: str | None, target: str | None, directions: dict[str, list[str]]) -> str:
    known = {*directions, *(code for targets in directions.values() for code in targets)}
    for code in (source, target):
        if code is not None and _same(code, [*known]) is None:
            return f"{code[:80]} is not supported"
    named = [code and f"{language_name(code)} ({code})" for code in (source, target)]
    if not named[1]:
        sources = first_names(directions, listed="GET /languages")
        return f"no model translates from {named[0]}: expected {sources} as the source language"
    return f"{named[1]} is not available as a target language from {named[0] or 'the source language of a model'}"


def load_models(
    given: Sequence[str],
    *,
    precision: str | None = None,
    device: str | None = None,
    languages: Languages = (None, None),
) -> Models:
    """Loads models.

    :param given: names or folders as for `rskip.load`, each also as NAME=MODEL.
    :param languages: source and target language of requests that name none, for each multilingual model that has both.
    :raises ValueError: as `rskip.load`, two models have the same name, or no model has both languages.
    :raises OSError: as `rskip.load`.
    """
    places = [_parted(each) for each in given]
    models = []
    have_languages = languages == (None, None)
    for (name, place), public in zip(places, _public_names(places), strict=True):
        model, known = _load(place, device=device, dtype=precision)
        if (chosen := _between(ServedModel("", model), known, languages)) is not None:
            model, known, have_languages = chosen, (chosen.source_language, chosen.target_language), True
        must_name = known[0] is None, known[1] is None
        models.append(ServedModel(name or public, model, must_name))
    names = [each.name for each in models]
    if not have_languages:
        if not any(each.model.tokenizer.languages for each in models):
            raise ValueError("--source-lang and --target-lang are for multilingual models: leave them out")
        source, target = (each or "not given" for each in languages)
        expected = "two languages of one multilingual model, which `rskip inspect MODEL` lists"
        raise ValueError(f"--source-lang is {source} and --target-lang is {target}: expected {expected}")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two models are called {twice}: give each its own name, --model NAME=MODEL")
    return Models(models)


def _between(served: ServedModel, known: Languages, asked: Languages) -> Translator | None:
    """A multilingual model's translator for the languages asked for; None: it lacks one, or none is asked for.

    :param known: languages in the place of those that are not asked for.
    """
    if asked == (None, None) or served.model.tokenizer.languages is None:
        return None
    found = served.codes(*asked)
    pair = [own if each is None else code for each, own, code in zip(asked, known, found, strict=True)]
    return None if None in pair or pair[0] == pair[1] else served.model.between(*pair)


def _load(place: str, **settings: str | None) -> tuple[Translator, Languages]:
    """A model, and the languages of requests that name none. If one is None, a request has to name it."""
    try:
        model = load(place, **settings)
        if not isinstance(model, Translator):
            raise ValueError(f"{place} is not a translation model: expected one, which `rskip serve` serves")
        return model, (model.source_language, model.target_language)
    except MissingExtra as error:
        if error.name != "torch":
            raise
        what = f"{place} needs PyTorch: it is not a translation model that runs without it, or --device asks for a GPU"
        raise MissingExtra(f"{what}; {advice('translation')}", name="torch") from error
    except MissingLanguage as error:
        source, target = error.any_pair
        return load(place, source_language=source, target_language=target, **settings), error.known


def _parted(given: str) -> tuple[str, str]:
    name, equals, place = given.partition("=")
    if not equals or "/" in name:
        return "", given
    if not (name and place):
        raise ValueError(f"--model {given}: expected NAME=MODEL")
    return name, place


def _public_names(places: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each place: its last part, or its last two if others have the same last part."""
    paths = [PurePath(place) for _, place in places]
    last = [path.name for path in paths]
    return ["/".join(path.parts[-2:]) if last.count(path.name) > 1 else path.name or str(path) for path in paths]
