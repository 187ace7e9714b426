"""Computes BLEU as in papers on WMT'14 English-German: over Moses' tokens, with hyphenated compounds split.

Two public scripts define it: tensor2tensor's utils/get_ende_bleu.sh, which tokenises raw translations first, and
fairseq's scripts/compound_split_bleu.sh, which reads a system's own tokens. Both split compounds in the same way, and
compute BLEU like Moses' multi-bleu.perl. The score is higher than sacreBLEU and must not be compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rskip.extras import extra
from rskip.text.pipeline import tool_versions
from rskip.text.words import MosesTokeniser

with extra("translation"):
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesPunctNormalizer

LANGUAGE = "de"
GERMAN_TOKENS, OWN_TOKENS = "moses-de", "own"
_COMPOUND = re.compile(rb"(\S)-(\S)")
_SPLIT = b"##AT##-##AT##"


def german_words(sentences: Iterable[str]) -> list[str]:
    """Tokenises raw German sentences like get_ende_bleu.sh: words joined by single spaces.

    Wide and typographic punctuation becomes plain. Then Moses' tokeniser runs with its default settings: dashes within
    words stay, and special characters become XML entities. The script does the first step only for hypotheses, since
    its references are tokenised already. Here both sides are raw and treated in the same way.
    """
    normaliser = MosesPunctNormalizer(LANGUAGE)
    tokeniser = MosesTokeniser(LANGUAGE, dash_splits=False)
    return [tokeniser.tokenise(normaliser.replace_unicode_punct(sentence)) for sentence in sentences]


def split_compounds(words: str) -> str:
    """Splits compounds: `rich-text format` becomes `rich ##AT##-##AT## text format`.

    It works on bytes from left to right, like the scripts' Perl. In `a-b-c` the second hyphen stays, since the first
    match includes the `b`. In `a-ü-c`, whose `ü` has two bytes, both hyphens are split off. The result of Moses'
    aggressive dash splitting, `rich @-@ text`, becomes `rich @ ##AT##-##AT## @ text`.
    """
    return _COMPOUND.sub(rb"\1 " + _SPLIT + rb" \2", words.encode()).decode()


def compound_split_bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokens: str) -> tuple[float, str]:
    """BLEU in % as in Moses' multi-bleu.perl (cased, without smoothing) after `split_compounds`, and its signature.

    :param hypotheses: words joined by spaces.
    :param references: the same number of references.
    :param tokens: kind of the words, for the signature: GERMAN_TOKENS or OWN_TOKENS.
    """
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    score = bleu.corpus_score(
        [split_compounds(words) for words in hypotheses], [[split_compounds(words) for words in references]]
    ).score
    kind = f"tok:{tokens}|split:{_SPLIT.decode()}"
    if tokens == GERMAN_TOKENS:
        kind += f"|sacremoses:{tool_versions('sacremoses')['sacremoses']}"
    signature = str(bleu.get_signature()).replace("tok:none", kind)
    return score, f"{signature}|comparable-with-sacreBLEU:no"
