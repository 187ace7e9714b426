"""Handles the tokens that tell a multilingual model its languages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rskip.settings.check import Checked
from rskip.settings.errors import SettingError, did_you_mean, first_names, shown
from rskip.text.dictionary import Dictionary
from rskip.text.language_codes import of_same_language


class MissingLanguage(SettingError):
    """Raised if a language of a multilingual model is not given.

    known: source and target, of which one or both are None.
    any_pair: the same with languages of the model in the place of None.
    """

    def __init__(self, known: tuple[str | None, str | None], codes: Sequence[str]) -> None:
        side = "source" if known[0] is None else "target"
        super().__init__(f"{side}_language", "must be given", expected=f"one of {listed(codes)}")
        others = [code for code in codes if code not in known]
        self.known, self.any_pair = known, tuple(code or (others.pop(0) if others else None) for code in known)


@dataclass(frozen=True, kw_only=True)
class LanguageTokens(Checked):
    """The language tokens of a multilingual model.

    :param codes: the languages, such as "deu_Latn"; if empty, those with a token in the target dictionary.
    :param form: the token of a language, with {} for its code.
    :param added: tokens that the model appends to those in its dictionary files, unless they are in the files.
    :param unmarked: languages without a token.
    :param sources: the only languages that the model translates from; if empty, all.
    :param encoder: the language whose token is in each source; None: no token.
    :param encoder_place: position of that token: before the sentence, instead of its end, or after its end.
    :param decoder: role of the target language's token in the decoder: the forced first token of a translation, the
        token that decoding starts from, or both the start and the end of a translation; None: no role.
    :param shows_others: translations show the tokens of other languages than the target, as in fairseq.
    """

    codes: tuple[str, ...] = ()
    form: str = "__{}__"
    added: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    encoder: Literal["source", "target"] | None = None
    encoder_place: Literal["start", "end", "after end"] = "start"
    decoder: Literal["first", "start", "start and end"] | None = None
    shows_others: bool = True

    @property
    def all_sources(self) -> tuple[str, ...]:
        """The languages that the model translates from."""
        return self.sources or (*self.codes, *self.unmarked)

    @property
    def targets(self) -> tuple[str, ...]:
        """The languages that the model translates to."""
        return (*self.codes, *(code for code in self.unmarked if code not in self.sources))

    def token(self, code: str) -> str:
        """The token of a language."""
        return self.form.replace("{}", code)

    def resolved(self, dictionary: Dictionary) -> LanguageTokens:
        """The same, with the dictionary's languages as `codes` if `codes` is empty."""
        if self.codes:
            return self
        pattern = re.compile(re.escape(self.form).replace(re.escape("{}"), r"([A-Za-z]{2,3}(?:[_-]\w+)?)"))
        found = map(pattern.fullmatch, dictionary.tokens)
        return replace(self, codes=tuple(match[1] for match in found if match))

    def check_pair(self, source: str | None, target: str | None) -> tuple[str, str]:
        """Checks that the model can translate between the languages, and returns its codes for them.

        Two letters, such as "de", stand for the code of that language if the model has exactly one, such as "deu_Latn".
        """
        found = []
        for side, code in (("source", source), ("target", target)):
            if code is None:
                raise MissingLanguage((source, target), self.codes)
            found.append(self._own_code(code, side, self.all_sources if side == "source" else self.targets))
        if found[0] == found[1]:
            problem = f"is {shown(target)}, the source language"
            raise SettingError("target_language", problem, expected="another language to translate to")
        return found[0], found[1]

    @staticmethod
    def _own_code(code: str, side: str, known: Sequence[str]) -> str:
        fitting = meant_codes(code, known)
        if len(fitting) == 1:
            return fitting[0]
        problem = f"is {shown(code)}{did_you_mean(code, known)}, which the model doesn't have"
        raise SettingError(f"{side}_language", problem, expected=f"one of {listed(fitting or known)}")

    def of_pair(
        self, source: str, target: str, source_dictionary: Dictionary, target_dictionary: Dictionary
    ) -> PairTokens:
        """The indices of the tokens for a translation from `source` to `target`."""
        source, target = self.check_pair(source, target)
        end, pair = Dictionary.eos_index, PairTokens()
        marked = source if self.encoder == "source" else target
        if self.encoder is not None and marked not in self.unmarked:
            token = self._index(marked, source_dictionary, "source")
            places = {
                "start": PairTokens(before=(token,)),
                "end": PairTokens(after=(token,)),
                "after end": PairTokens(after=(end, token)),
            }
            pair = places[self.encoder_place]
        if self.decoder is not None:
            token = self._index(target, target_dictionary, "target")
            decoders = {
                "first": replace(pair, first=(token,)),
                "start": replace(pair, start=token),
                "start and end": replace(pair, start=token, end=token),
            }
            others = () if self.shows_others else filter(target_dictionary.__contains__, map(self.token, self.codes))
            pair = replace(decoders[self.decoder], hidden=frozenset({token, *map(target_dictionary.index, others)}))
        return pair

    def _index(self, code: str, dictionary: Dictionary, side: str) -> int:
        token = self.token(code)
        if token not in dictionary:
            problem = f"is {shown(code)}, but the {side} dictionary has no token {token}"
            raise SettingError(f"{side}_language", problem, advice="give the dictionaries of the model")
        return dictionary.index(token)


@dataclass(frozen=True)
class PairTokens:
    """Indices of the tokens that surround a sentence, for one source and target language.

    before, after: tokens before and after a source. `after` begins with its end or the token instead of the end.
    first: forced first tokens of a translation.
    start: the token that decoding starts from; None: the end.
    end: the end of a translation.
    hidden: tokens that never belong to a translation's text.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = (Dictionary.eos_index,)
    first: tuple[int, ...] = ()
    start: int | None = None
    end: int = Dictionary.eos_index
    hidden: frozenset[int] = frozenset()

    @property
    def source_length(self) -> int:
        """The number of tokens that are added to the sentence of a source."""
        return len(self.before) + len(self.after)

    def source_ids(self, ids: Iterable[int]) -> list[int]:
        """The source for these tokens."""
        return [*self.before, *ids, *self.after]

    def inner(self, ids: Sequence[int]) -> slice:
        """The part of a hypothesis that is the translation, with one end: without its forced beginning, and without a
        second end if the model marks the end by two tokens."""
        usual = Dictionary.eos_index
        ends_twice = self.end != usual and len(ids) > 1 and list(ids[-2:]) == [usual, self.end]
        return slice(len(self.first), len(ids) - ends_twice)


def meant_codes(code: str, known: Sequence[str]) -> list[str]:
    """Those of a model's codes that `code` may stand for: itself, or else, for two letters, each of that language."""
    if code in known:
        return [code]
    return of_same_language(code, known) if len(code) == 2 else []


def listed(codes: Iterable[str]) -> str:
    """Languages as an error lists them."""
    return first_names(sorted(codes), listed="`rskip inspect MODEL`") or "none: it has no language tokens"
