"""Folders of M2M-100, NLLB, mBART and FSMT compute what transformers computes, and their text is its tokenizers'."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.checkpoint import build_transformer
from rskip.checkpoint.hugging_face import HuggingFaceModel, read_hugging_face
from rskip.cpu import for_inference
from rskip.text import Dictionary, TextPipeline
from rskip.transformer import Transformer
from rskip.translation import Translator
from tests.checkpoint.hugging_face.conftest import WORDS, transformers
from tests.checkpoint.hugging_face.families import FAMILIES, joint_pieces, write_fsmt, write_nllb
from tests.checkpoint.hugging_face.reference import ADDED, lines_with_added_tokens, odd_lines, reference_search

MARK = "\u2581"
INVISIBLE = "\u200b\ufeff\u200d \t\u3000\u00a0\u2028\x85\x1c"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives the folder of a family."""
    place = tmp_path_factory.mktemp("families")
    return cache(lambda name: FAMILIES[name].write(place / name))


def theirs(name: str, folder: Path) -> Any:
    kind = getattr(transformers, f"{FAMILIES[name].model}ForConditionalGeneration")
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def their_tokenizer(name: str, folder: Path) -> Any:
    family = FAMILIES[name]
    languages = dict(zip(("src_lang", "tgt_lang"), family.languages, strict=True)) if "fsmt" not in name else {}
    return getattr(transformers, family.tokenizer).from_pretrained(folder, **languages)


def read(name: str, folder: Path) -> HuggingFaceModel:
    return read_hugging_face(folder, languages=FAMILIES[name].languages)


def built(model: HuggingFaceModel) -> Transformer:
    return build_transformer(model.checkpoint, source_vocabulary=len(model.source), target_vocabulary=len(model.target))


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_theirs(folders: Any, name: str) -> None:
    reference, own = theirs(name, folders(name)), read(name, folders(name))
    model = built(own)
    torch.manual_seed(0)
    source = torch.randint(4, len(own.source), (5, 9))
    source[1, 6:] = source[3, 2:] = Dictionary.pad_index
    prefix = torch.cat([torch.full((5, 1), 2), torch.randint(2, len(own.target), (5, 12))], dim=1)
    with torch.inference_mode():
        expected = reference(
            input_ids=source, attention_mask=source.ne(1).long(), decoder_input_ids=prefix, use_cache=False
        ).logits
        steps = for_inference(model)
        state = steps.start(steps.encode(source))
        stepwise = torch.cat([steps.step(tokens[:, None], state) for tokens in prefix.T], dim=1)
        found = model(source, prefix)
    assert expected.std() > 0.5
    for each in (found, stepwise):
        torch.testing.assert_close(each, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_search_is_fairseqs_over_their_model(folders: Any, name: str) -> None:
    """The score of the forced language token counts, and hypotheses don't hold it."""
    family, reference = FAMILIES[name], theirs(name, folders(name))
    translator = Translator.from_pretrained(
        folders(name), source_language=family.languages[0], target_language=family.languages[1]
    )
    target = translator.tokenizer.target
    tokens = {"start": target.index(family.start), "end": target.index(family.end)}
    first = None if family.first is None else target.index(family.first)
    generator = random.Random(3)
    words = WORDS["en"].split()
    for _ in range(8):
        line = " ".join(generator.choices(words, k=generator.randint(1, 4)))
        (translation,) = translator.translate([line], beam=5, nbest=5, max_length_a=0.0, max_length_b=8)
        source = torch.tensor(translator.tokenizer.encode(line))
        with torch.inference_mode():
            expected = reference_search(reference, source, beam=5, longest=8, padding=1, first=first, **tokens)
        scores = [score for _, score in expected]
        assert [each.score for each in translation.hypotheses] == pytest.approx(scores, abs=2e-5)
        for found, (ids, score) in zip(translation.hypotheses, expected, strict=True):
            ids = ids[len(ids) and first is not None :]
            if family.end != "</s>" and ids[-1:] == [Dictionary.eos_index]:
                ids = ids[:-1]
            tied = sum(abs(other - score) < 2e-5 for other in scores) > 1
            assert found.tokens == tuple(target.tokens[index] for index in ids) or tied


def assert_their_text(name: str, folder: Path, lines: list[str]) -> None:
    """SentencePiece makes no unit of spaces at the end, but Hugging Face's tokenizers do. They also see a mark and the
    accent behind it as one character.
    """
    reference, own = their_tokenizer(name, folder), read(name, folder).tokenizer
    marks = {own.source.index(MARK)} - {Dictionary.unk_index}
    further = [*own.pair.after]

    def without_marks(ids: list[int]) -> list[int]:
        assert ids[-len(further) :] == further
        inner = ids[: -len(further)]
        while inner and inner[-1] in marks:
            inner.pop()
        return inner

    lines = [line for line in lines if line.strip(INVISIBLE)]
    if name == "mbart25":  # white space is what Unicode says, and not what Python says
        lines = [line for line in lines if not {*line} & {"\x1c", MARK}]
    for line in lines:
        if f"{MARK}\u0301" not in line:
            assert without_marks(own.encode(line)) == without_marks(reference(line)["input_ids"]), repr(line)
        target = own.encode_prefix(line)
        known = [index for index in target if index != Dictionary.unk_index]
        expected = reference.decode(known, skip_special_tokens=True)
        assert own.decode(known).split() == expected.split(), repr(line)
        if name != "mbart25":
            assert own.decode(known) == expected.strip(), repr(line)


@pytest.mark.parametrize("name", FAMILIES)
def test_text_is_that_of_their_tokenizer(folders: Any, name: str) -> None:
    assert_their_text(name, folders(name), odd_lines())


def with_added_tokens(name: str, folder: Path, copy: Path) -> Path:
    """The copy of a family's folder, to whose vocabulary tokens were added."""
    shutil.copytree(folder, copy)
    tokenizer, model = their_tokenizer(name, folder), theirs(name, folder)
    if name == "m2m":  # as in the files of the Hub
        codes = read(name, folder).tokenizer.languages.codes
        tokenizer.add_tokens([f"__{code}__" for code in codes], special_tokens=True)
    tokenizer.add_tokens(ADDED)
    if len(tokenizer) > len(model.get_input_embeddings().weight):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    for part in (tokenizer, model):
        part.save_pretrained(copy)
    return copy


@pytest.mark.parametrize("name", [name for name in FAMILIES if "fsmt" not in name])
def test_added_tokens_stay_whole(folders: Any, name: str, tmp_path: Path) -> None:
    folder = with_added_tokens(name, folders(name), tmp_path / "model")
    assert_their_text(name, folder, [*lines_with_added_tokens(), *odd_lines()])
    own = read(name, folder).tokenizer
    own.save(tmp_path)
    for line in lines_with_added_tokens():
        assert TextPipeline.load(tmp_path / "text").encode(line) == own.text.encode(line)


def test_added_tokens_of_fsmt_are_refused(folders: Any, tmp_path: Path) -> None:
    shutil.copytree(folders("fsmt"), tmp_path / "model")
    (tmp_path / "model" / "added_tokens.json").write_text(json.dumps({"<name>": 90, "Fussballverein": 91}))
    problem = r"has 2 added tokens \(<name>, Fussballverein\), which rskip can't read in FSMT"
    with pytest.raises(ValueError, match=problem):
        read("fsmt", tmp_path / "model")


def test_languages_are_those_that_the_files_list(folders: Any, tmp_path: Path) -> None:
    """Without tokenizer.json they have the rows behind the units, in the order of the list."""
    mbart, m2m = tmp_path / "mbart", tmp_path / "m2m"
    shutil.copytree(folders("mbart50"), mbart)
    expected = read("mbart50", mbart).tokenizer
    about = json.loads((mbart / "tokenizer_config.json").read_text())
    codes = [code for code in about.pop("extra_special_tokens") if "_" in code]
    (mbart / "tokenizer.json").unlink()
    (mbart / "tokenizer_config.json").write_text(json.dumps(about))
    (mbart / "sentencepiece.bpe.model").write_bytes(joint_pieces("unigram"))
    for listed in (codes, None):  # mBART-50's own, if no file lists them
        if listed is not None:
            (mbart / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": listed}))
        found = read("mbart50", mbart).tokenizer
        assert found.source.tokens[:-1] == expected.source.tokens[:-1]  # the last is the mask
        assert (found.languages, found.pair) == (expected.languages, expected.pair)
        (mbart / "special_tokens_map.json").unlink(missing_ok=True)

    shutil.copytree(folders("m2m"), m2m)
    expected = read("m2m", m2m).tokenizer
    listed = [{"content": "__en__"}, {"content": "__de__"}]
    (m2m / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": listed}))
    found = read("m2m", m2m).tokenizer
    assert found.languages.codes == ("de", "en") and len(expected.languages.codes) == 100
    assert (found.pair.before, found.pair.first) == (expected.pair.before, expected.pair.first)


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "TokenizersBackend", "NllbTokenizerFast", None])
def test_nllb_is_known_by_its_files(folders: Any, kind: str | None, tmp_path: Path) -> None:
    shutil.copytree(folders("nllb"), tmp_path / "model")
    about = tmp_path / "model" / "tokenizer_config.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "tokenizer_class": kind}))
    assert read("nllb", tmp_path / "model").tokenizer.pair == read("nllb", folders("nllb")).tokenizer.pair


def test_rows_behind_the_vocabulary_have_no_tokens(tmp_path: Path) -> None:
    padded = write_nllb(tmp_path / "nllb", vocab_size=1024)
    assert len(read("nllb", padded).source) == 1024


def test_a_tokenizer_lowercases(tmp_path: Path) -> None:
    folder = write_fsmt(tmp_path / "fsmt", lowercase=True)
    reference, own = their_tokenizer("fsmt", folder), read("fsmt", folder).tokenizer
    assert own.encode("The DOG Runs, Über") == reference("The DOG Runs, Über")["input_ids"]


def edited(folders: Any, name: str, tmp_path: Path, file: str, edit: Callable[[Any], object]) -> Path:
    """A copy of a folder with a change in a JSON file."""
    copy = Path(shutil.copytree(folders(name), tmp_path / "model"))
    content = json.loads((copy / file).read_text())
    edit(content)
    (copy / file).write_text(json.dumps(content))
    return copy


def _charsmap(content: str) -> dict[str, Any]:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": content}}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *(("mbart50", {"model": {"vocab": {10: {1: score}}}}) for score in (1e300, 10**400, math.nan)),
        ("mbart50", {"model": {"vocab": {10: {0: ""}}}}),
        ("mbart50", {"model": {"vocab": {10: {0: "\ud800"}}}}),
        ("nllb", {"model": {"merges": 5}}),
        ("nllb", {"model": {"type": ["BPE"]}}),
        ("nllb", {"normalizer": {"type": "Sequence", "normalizers": 5}}),
        *(("nllb", _charsmap(content)) for content in ("AAAA", "é")),
    ],
)
def test_a_damaged_tokenizer_is_named(folders: Any, name: str, changes: Any, tmp_path: Path) -> None:
    def change(content: Any, changes: Any = changes) -> None:
        for key, value in changes.items():
            if isinstance(value, dict) and key != "normalizer":
                change(content[key], value)
            else:
                content[key] = value

    with pytest.raises(ValueError, match=r"^\S+model/tokenizer\.json: .") as error:
        read(name, edited(folders, name, tmp_path, "tokenizer.json", change))
    assert len(str(error.value).splitlines()) == 1


def test_merges_that_sentencepiece_cannot_express_are_refused(folders: Any, tmp_path: Path) -> None:
    def add_another_way(content: Any) -> None:
        merges, vocab = content["model"]["merges"], content["model"]["vocab"]
        for (_, middle), last in [(first, last) for first, last in merges if len(first) == 2]:
            vocab.setdefault(middle + last, len(vocab))
            merges.append([middle, last])

    with pytest.raises(ValueError, match="made with SentencePiece"):
        read("nllb", edited(folders, "nllb", tmp_path, "tokenizer.json", add_another_way))


def test_a_token_number_of_any_length_is_read(folders: Any, tmp_path: Path) -> None:
    added = {"9" * 5000: {"content": "x"}}
    copy = edited(
        folders, "nllb", tmp_path, "tokenizer_config.json", lambda about: about.update(added_tokens_decoder=added)
    )
    assert read("nllb", copy).source.tokens == read("nllb", folders("nllb")).source.tokens
