"""Splitting texts into sentences."""

from __future__ import annotations

import pytest

from rskip.text.sentences import SplitText


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A dog runs.", ["A dog runs."]),
        ("  A dog. Two cats!\n\n\tNo end \n", ["A dog.", "Two cats!", "No end"]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("Mr. Smith paid 3.50 to Dr. B. Jones. He left.", ["Mr. Smith paid 3.50 to Dr. B. Jones.", "He left."]),
        ("z.B. so. e.g. this... and that", ["z.B. so. e.g. this... and that"]),
        ("犬が走る。猫が眠る。", ["犬が走る。", "猫が眠る。"]),
        ("a\u2028b\r\nc\x0bd\x85e", ["a", "b", "c", "d", "e"]),
        ("", []),
        (" \n ", []),
        ("...", []),
        ("12:30. A dog runs. 42! 1, 2! No", ["A dog runs.", "No"]),
        ("Wait... What? ", ["Wait...", "What?"]),
        ("Hello! 😊 A man. 👍🏽👨\u200d👩\u200d👧 Two dogs.❤️ Go 😊 on", ["Hello!", "A man.", "Two dogs.", "Go 😊 on"]),
        ("😆\n🇩🇪 No ✈️", ["No"]),
        ("㈱トヨタ", ["㈱トヨタ"]),
        ("In the U.S. Senate and for J.R. Ewing. It ended.", ["In the U.S. Senate and for J.R. Ewing.", "It ended."]),
        ("See Fig. 3, No. 5. I said no. But I went.", ["See Fig. 3, No. 5.", "I said no.", "But I went."]),
        ("By Dec. 6 it ended. Cats, etc. We left.", ["By Dec. 6 it ended.", "Cats, etc.", "We left."]),
        ("He came 2. She came 1. I left.", ["He came 2.", "She came 1.", "I left."]),
        ("Am 21. Dezember und im 19. Jahrhundert. Er kam.", ["Am 21. Dezember und im 19. Jahrhundert.", "Er kam."]),
        ("Die VI. Sitzung kostete 3 Mio. Euro. Ende.", ["Die VI. Sitzung kostete 3 Mio. Euro.", "Ende."]),
        ("Maj.\xa0Fein ging. M. Dupont\xa0! Oui.", ["Maj.\xa0Fein ging.", "M. Dupont\xa0!", "Oui."]),
        ('Il dit : " Je pars. Adieu. " Puis rien.', ['Il dit : " Je pars.', 'Adieu. "', "Puis rien."]),
        ("1. First item\n2. Second item. More", ["First item", "Second item.", "More"]),
        ("TITLE\n\nA text. - A dash.", ["TITLE", "A text.", "- A dash."]),
        ("«Да!» — сказал он. На ул. Мира тихо.", ["«Да!» — сказал он.", "На ул. Мира тихо."]),
        ("「行く。」と言った。本当？！はい。", ["「行く。」と言った。", "本当？！", "はい。"]),
        ("他说：“走吧。”她笑了。好！", ["他说：“走吧。”她笑了。", "好！"]),
        ("कुत्ता दौड़ता है। बिल्ली सोती है।", ["कुत्ता दौड़ता है।", "बिल्ली सोती है।"]),
        ("هل ذهبت؟ نعم. انتهى!", ["هل ذهبت؟", "نعم.", "انتهى!"]),
        ("کتا دوڑتا ہے۔ بلی سوتی ہے۔", ["کتا دوڑتا ہے۔", "بلی سوتی ہے۔"]),
        ("ውሻ ይሮጣል። ድመት ይተኛል።", ["ውሻ ይሮጣል።", "ድመት ይተኛል።"]),
        ("Շունը վազում է։ Կատուն քնում է։", ["Շունը վազում է։", "Կատուն քնում է։"]),
        ("หมาวิ่ง แมวนอน", ["หมาวิ่ง แมวนอน"]),  # Thai has no mark at a sentence's end
    ],
)
def test_a_text_is_its_sentences_and_the_space_between(text, sentences):
    split = SplitText(text)
    assert split.sentences == sentences
    assert split.joined(sentences) == text
    assert split.joined([f"<{each}>" for each in sentences]).count("<") == len(sentences)


@pytest.mark.parametrize("text", [" " * 10**6, ". " * 10**5, '."' * 10**5, "\n \n" * 10**5, "a " * 10**5])
def test_a_text_that_would_take_hours_in_quadratic_time_is_split(text):
    split = SplitText(text)
    assert split.joined(split.sentences) == text


@pytest.mark.parametrize(
    ("text", "translations", "result"),
    [
        ("你好。 再见。", ["Hello.", "Bye."], "Hello. Bye."),
        ("你好。再见。", ["Hello.", "Bye."], "Hello. Bye."),
        ("你好。再见。", ["もしもし。", "バイバイ。"], "もしもし。バイバイ。"),
        (" A dog.\n  A cat. 12!", ["Ein Hund.", "Eine Katze."], " Ein Hund.\n  Eine Katze. 12!"),
    ],
)
def test_translations_stand_where_their_sentences_stood(text, translations, result):
    assert SplitText(text).joined(translations) == result
