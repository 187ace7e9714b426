"""Names languages, and finds a model's codes for a language."""

from __future__ import annotations

from collections.abc import Iterable

# two-letter code, three-letter code (ISO 639) and English name of the languages that translation models use most
_TABLE = """
af afr Afrikaans|am amh Amharic|ar arb Arabic|az azj Azerbaijani|be bel Belarusian|bg bul Bulgarian|bn ben Bengali
bs bos Bosnian|ca cat Catalan|cs ces Czech|cy cym Welsh|da dan Danish|de deu German|el ell Greek|en eng English
eo epo Esperanto|es spa Spanish|et est Estonian|eu eus Basque|fa pes Persian|fi fin Finnish|fr fra French|ga gle Irish
gl glg Galician|gu guj Gujarati|he heb Hebrew|hi hin Hindi|hr hrv Croatian|hu hun Hungarian|hy hye Armenian
id ind Indonesian|is isl Icelandic|it ita Italian|ja jpn Japanese|jv jav Javanese|ka kat Georgian|kk kaz Kazakh
km khm Khmer|kn kan Kannada|ko kor Korean|ky kir Kyrgyz|lb ltz Luxembourgish|lo lao Lao|lt lit Lithuanian
lv lvs Latvian|mk mkd Macedonian|ml mal Malayalam|mn khk Mongolian|mr mar Marathi|ms zsm Malay|mt mlt Maltese
my mya Burmese|nb nob Norwegian Bokmål|ne npi Nepali|nl nld Dutch|nn nno Norwegian Nynorsk|no nor Norwegian
pa pan Punjabi|pl pol Polish|ps pbt Pashto|pt por Portuguese|ro ron Romanian|ru rus Russian|si sin Sinhala
sk slk Slovak|sl slv Slovenian|so som Somali|sq als Albanian|sr srp Serbian|sv swe Swedish|sw swh Swahili|ta tam Tamil
te tel Telugu|th tha Thai|tl tgl Tagalog|tr tur Turkish|uk ukr Ukrainian|ur urd Urdu|uz uzn Uzbek|vi vie Vietnamese
xh xho Xhosa|yo yor Yoruba|zh zho Chinese|zu zul Zulu
"""
# groups of languages in the names of Marian models (ISO 639-5, or OPUS-MT's own), and their languages in the table
_GROUPS = """
roa itc ROMANCE: fr es pt it ro ca gl|gmq SCANDINAVIA: da is nb nn no sv|NORWAY: nb nn no|gmw: de en nl af lb
gem: de en nl af lb da is nb nn no sv|NORTH_EU: de nl af da is nb nn no sv|cel CELTIC: ga cy|bat: lt lv
sla: be bg bs cs hr mk pl ru sk sl sr uk|zle: be ru uk|zls: bg bs hr mk sl sr|zlw: cs pl sk|fiu urj: et fi hu
inc: bn gu hi mr ne pa si ur|ira: fa ps|dra: kn ml ta te|trk: az kk ky tr uz|sem: am ar he mt|bnt: sw xh zu
map poz: id jv ms tl|ZH: zh
"""
_ROWS = [row.split(" ", 2) for row in _TABLE.strip().replace("\n", "|").split("|")]
_NAMES = {short: name for short, _, name in _ROWS}
_SHORT = {long: short for short, long, _ in _ROWS}
_MEMBERS = {
    name: members.split()
    for names, _, members in (row.partition(":") for row in _GROUPS.strip().replace("\n", "|").split("|"))
    for name in names.split()
} | {"mul": [*_NAMES]}


def short_code(code: str) -> str:
    """The two-letter code of a model's language: "de" for "de", "de_DE" and "deu_Latn". Another code is unchanged."""
    first = code.replace("-", "_").partition("_")[0]
    return _SHORT.get(first, first if first in _NAMES else code)


def language_name(code: str) -> str:
    """The English name of a model's language; its code if we don't know the name."""
    name = _NAMES.get(short_code(code), code)
    script = code.partition("_")[2]
    return f"{name} ({script})" if len(script) == 4 and script != "Latn" else name


def of_same_language(code: str, codes: Iterable[str]) -> list[str]:
    """Those of the codes that stand for the language of `code`."""
    return [each for each in codes if short_code(each) == short_code(code)]


def group_members(code: str) -> list[str]:
    """The two-letter codes of a group's languages, such as ROMANCE; empty for another code."""
    return _MEMBERS.get(code, [])
