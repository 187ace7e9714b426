"""Raw pairs to words, as a corpus's text needs it."""

from __future__ import annotations

from rskip.corpora.corpus import Pair
from rskip.text.pipeline import LanguageText, TextConfig
from rskip.text.tokeniser import MosesTokeniser, WhitespaceTokeniser


class PairText:
    """Both languages' halves of a text pipeline, for text that may be tokenised already.

    :param tokenised: the text is tokenised by Moses' rules: a pipeline with a tokeniser takes its words as they are;
        one without (SentencePiece) gets the sentences that they were.
    """

    def __init__(self, config: TextConfig, *, tokenised: bool) -> None:
        languages = (config.source_language, config.target_language)
        self._texts = [LanguageText(config, language) for language in languages]
        self._moses = [MosesTokeniser(language) for language in languages] if tokenised else []
        self._take_words = tokenised and config.tokeniser != "none"
        self._spaces = WhitespaceTokeniser()

    def words(self, pair: Pair) -> Pair:
        """Both sides as words joined by single spaces."""
        source, target = self._texts
        if self._take_words:
            return self._spaces.tokenise(pair[0]), self._spaces.tokenise(pair[1])
        if self._moses:
            pair = self.raw(pair)
        return source.words(pair[0]), target.words(pair[1])

    def raw(self, pair: Pair) -> Pair:
        """The sentences as a translator takes and gives them: without tokenisation and Moses' escapes."""
        if not self._moses:
            return pair
        source, target = self._moses
        return source.detokenise(pair[0]), target.detokenise(pair[1])
