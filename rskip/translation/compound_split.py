"""BLEU as papers on WMT'14 English-German report it: of Moses' tokens, hyphenated compounds split.

Two public scripts define it: tensor2tensor's utils/get_ende_bleu.sh, which tokenises raw translations first, and
fairseq's scripts/compound_split_bleu.sh, which takes a system's own tokens. Both split alike, then compute BLEU by
Moses' multi-bleu.perl or by its equal. It comes out higher than sacreBLEU and must not be compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rskip.machine.extras import extra
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
    """Raw German sentences as get_ende_bleu.sh tokenises them: words joined by single spaces.

    Wide and typographic punctuation becomes plain, then Moses' tokeniser with its default settings: dashes within
    words stay, special characters become XML entities. The script does the first step to hypotheses alone, its
    references being tokenised already; here both sides are raw and treated alike.
    """
    normaliser = MosesPunctNormalizer(LANGUAGE)
    tokeniser = MosesTokeniser(LANGUAGE, dash_splits=False)
    return [tokeniser.tokenise(normaliser.replace_unicode_punct(sentence)) for sentence in sentences]


def split_compounds(words: str) -> str:
    """`rich-text format` becomes `rich ##AT##-##AT## text format`.

    By bytes and from left to right, as the scripts' Perl does it: of `a-b-c` the second hyphen stays, since the
    match before it took the `b`; of `a-ü-c`, whose `ü` has two bytes, both are split off. What Moses' aggressive
    dash splitting left, `rich @-@ text`, becomes `rich @ ##AT##-##AT## @ text`.
    """
    return _COMPOUND.sub(rb"\1 " + _SPLIT + rb" \2", words.encode()).decode()


def compound_split_bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokens: str) -> tuple[float, str]:
    """BLEU by the definition of Moses' multi-bleu.perl (cased, without smoothing) after `split_compounds`, a
    percentage, and its signature.

    :param hypotheses: words joined by spaces.
    :param references: as many.
    :param tokens: what the words are, for the signature: GERMAN_TOKENS or OWN_TOKENS.
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
