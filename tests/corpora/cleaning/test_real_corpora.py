"""Cleaning of the real corpora, against plain sets of their sentences."""

import gzip
from pathlib import Path

from rskip.corpora.cleaning import (
    CleaningReport,
    PairCleaner,
    find_duplicates,
    pair_digest,
)
from rskip.corpora.corpus import CleaningOptions, Pair


def pairs(folder: Path, *names: str) -> list[Pair]:
    sides = []
    for name in names:
        text = gzip.decompress((folder / f"{name}.gz").read_bytes()).decode()
        sides.append([" ".join(line.split()) for line in text.removesuffix("\n").split("\n")])
    return list(zip(*sides, strict=True))


def clean(training: list[Pair], held_out: list[Pair], options: CleaningOptions) -> tuple[list[Pair], CleaningReport]:
    cleaner = PairCleaner(options, languages=("en", "xx"), held_out=held_out)
    report = CleaningReport.of(options)
    kept = []
    for words in training:
        reason = cleaner.reason(words)
        report.count("all", reason, held_out_sides=cleaner.held_out_sides(words))
        if reason is None:
            kept.append(words)
    return kept, report


def test_multi30k_has_no_leak_and_three_duplicates(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data/multi30k"
    train = pairs(folder, "train.en", "train.de")
    kept, report = clean(
        train, pairs(folder, "test_2016_flickr.en", "test_2016_flickr.de"), CleaningOptions(leaks=True)
    )
    assert kept == train
    assert report.to_dict()["total"] == {
        "pairs": 29_000, "dropped": {"leak": 0}, "kept": 29_000,
        "source also in valid or test": 0, "target also in valid or test": 0,
    }  # fmt: skip
    (tmp_path / "digests").write_bytes(b"".join(map(pair_digest, train)))
    dropped = find_duplicates(tmp_path / "digests").tolist()
    assert [pair for row, pair in enumerate(train) if row not in dropped] == list(dict.fromkeys(train))
    assert len(dropped) == 3


def test_the_iwslt15_subset_has_leaks(shared: Path) -> None:
    folder = shared / "data/iwslt15-en-vi"
    train = pairs(folder, "subset30k.en", "subset30k.vi")
    held_out = [
        pair
        for name in ("tst2012", "tst2013")
        for pair in pairs(folder, f"subset30k-{name}.en", f"subset30k-{name}.vi")
    ]
    leaks = set(held_out)
    kept, report = clean(train, held_out, CleaningOptions(leaks=True))
    assert kept == [pair for pair in train if pair not in leaks]
    counts = report.to_dict()["total"]
    assert counts["dropped"]["leak"] == len(train) - len(kept) == 141
    sources, targets = ({pair[side] for pair in held_out} for side in (0, 1))
    assert counts["source also in valid or test"] == sum(pair[0] in sources for pair in kept) == 87
    assert counts["target also in valid or test"] == sum(pair[1] in targets for pair in kept) == 33
