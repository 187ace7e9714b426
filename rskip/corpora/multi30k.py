"""Multi30k, task 1: image captions in English, German and French (Elliott et al., 2016, 2017)."""

from __future__ import annotations

from rskip.corpora.corpus import ParallelFiles, PublishedCorpus, UpstreamFile

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"

SENTENCES = {"train": 29_000, "val": 1_014, "test_2016_flickr": 1_000}

# Computed from the files.
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}


def _parallel(split: str) -> tuple[ParallelFiles]:
    files = {}
    for language in ("en", "de", "fr"):
        name = f"{split}.{language}.gz"
        files[language] = UpstreamFile(name=name, url=f"{URL}/{name}", sha256=SHA256[name])
    return (ParallelFiles(files=files, sentences=SENTENCES[split]),)


def multi30k(source: str, target: str) -> PublishedCorpus:
    """Multi30k from one of its languages to another; the test set is that of 2016."""
    return PublishedCorpus(
        name=f"multi30k-{source}-{target}",
        source=source,
        target=target,
        homepage="https://github.com/multi30k/dataset",
        licence="research use; the captions describe Flickr images under Flickr's terms",
        citation="Elliott et al. (2016), Multi30K: Multilingual English-German Image Descriptions"
        if "fr" not in (source, target)
        else "Elliott et al. (2017), Findings of the Second Shared Task on Multimodal Machine Translation",
        subword_size=10_000,
        folder="multi30k",
        splits={
            "train": _parallel("train"),
            "valid": _parallel("val"),
            "test": _parallel("test_2016_flickr"),
        },
    )
