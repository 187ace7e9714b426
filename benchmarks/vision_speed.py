"""Speed of PreAct-ResNet-20 on CIFAR-10: plain PyTorch loops with torchvision's data compared with ours.

speed: the plain loop has the same model class, torchvision's CIFAR10, its transforms (RandomCrop, RandomHorizontalFlip,
ToTensor, Normalize) and a DataLoader, with and without workers. Ours is an iteration of `rskip vision train`; its
default on this machine is printed.
connections: the cost of each connection relative to 1xskip.

The systems alternate in one process, with training batches of 128. A ratio compares times of the same round; the
median over rounds is reported. bfloat16 is skipped on a CPU that only emulates it. Prints tables and appends one JSON
line to study/results/benchmarks/vision_speed.jsonl.

    python benchmarks/vision_speed.py --data FOLDER [--rounds 7] [--steps 20] [--only speed connections] [--device cuda]

FOLDER contains cifar-10-batches-py. Without it only connections are measured, on random bytes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measuring.gpu import synchronise
from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max, ratios, take_turns
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from rskip.machine.device import bfloat16_is_slow, set_gpu_arithmetic, usable_device
from rskip.vision import preact_resnet20
from rskip.vision.data import ImageSet, load_dataset
from rskip.vision.datasets import DATASETS
from rskip.vision.settings import TrainingSettings
from rskip.vision.training import Start, TrainingFolder, image_training

BATCH = 128
CONNECTIONS = (
    "1xskip", "2xskip", "1xskip+bn", "1xskip+ln", "2xskip+ln", "wskip+ln", "2rskip+ln", "3rskip+ln", "2rskip+bn",
    "2rskip+rms", "sas:alpha_bias=3,beta_bias=-3", "sas:gate=single", "highway",
)  # fmt: skip
WARM_UP = 3  # steps per system that do not count

PARTS = ("speed", "connections")

Step = Callable[[], object]


def plain_loop(data: Path, device: torch.device, *, workers: int) -> Step:
    """One iteration of the usual PyTorch loop."""
    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(DATASETS["cifar10"].mean, DATASETS["cifar10"].std),
        ]
    )
    dataset = datasets.CIFAR10(str(data), train=True, transform=transform)
    loader = DataLoader(
        dataset, BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=workers > 0
    )
    model = preact_resnet20().to(device).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    endless = batches()

    def step() -> None:
        images, labels = next(endless)
        loss = F.cross_entropy(model(images.to(device)), labels.to(device))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def random_images(*, train: bool) -> ImageSet:
    """Random images, as many as CIFAR-10 has."""
    generator, count = torch.Generator().manual_seed(0), 50_000 if train else 10_000
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.randint(10, (count,), generator=generator), tuple("abcdefghij"))


def our_loop(data: Path | None, device: torch.device, folder: Path, **settings: Any) -> Step:
    """One iteration of `rskip vision train`."""
    images, test_images = (
        random_images(train=train) if data is None else load_dataset("cifar10", data, train=train)
        for train in (True, False)
    )
    chosen = TrainingSettings(batch_size=BATCH, **settings)
    start = Start(settings=chosen, files=TrainingFolder(folder), seed=1, device=device)
    return image_training(start, images, test_images).step


def compared(
    systems: Mapping[str, Step], args: argparse.Namespace, plain: Sequence[str], title: str, *, steps: int
) -> dict[str, Any]:
    """Images per second, and their ratio to the fastest of `plain`, over rounds of `steps` iterations."""

    def seconds(step: Step, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step()
        synchronise(args.device)
        return time.perf_counter() - start

    for step in systems.values():
        seconds(step, WARM_UP)
    calls = {name: partial(seconds, step, steps) for name, step in systems.items()}
    times = take_turns(calls, args.rounds)
    baseline = min(plain, key=lambda name: statistics.median(times[name]))
    found = []
    print(f"\n| {title.format(baseline)} | images/s | ratio (min to max) |\n|---|---|---|")
    for name, taken in times.items():
        rate, ratio = BATCH * steps / statistics.median(taken), median_min_max(ratios(times, baseline, name), 3)
        found.append({"system": name, "images_per_second": round(rate, 1), "ratio": ratio})
        print("| {} | {} | {:.2f} ({:.2f} to {:.2f}) |".format(name, round(rate, 1), *ratio))
    return {"baseline": baseline, "rows": found}


def main() -> None:
    parser = benchmark_parser(__doc__, "vision_speed")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder with cifar-10-batches-py")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="iterations per round; a quarter of that for connections")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    args = parser.parse_args()
    if args.data is None and "speed" in args.only:
        print("not measured: speed needs --data FOLDER; --only connections doesn't")
        return
    try:
        args.device = usable_device(args.device)
    except ValueError as error:
        parser.error(str(error))
    set_gpu_arithmetic(args.device, training=True, same_shapes=True)
    precisions = ["float32"] + ([] if bfloat16_is_slow(args.device) else ["bfloat16"])
    best = f"ours, {precisions[-1]}"
    values: dict[str, Any] = {"rounds": args.rounds, "steps": args.steps, "batch_size": BATCH}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "speed" in args.only:
            plain = {f"plain loop, {n} workers": plain_loop(args.data, args.device, workers=n) for n in (0, 2)}
            variants = {"": {}, ", compiled": {"compile": True}, ", channels first": {"channels_last": False}}
            ours = {
                f"ours, {precision}{name}": our_loop(args.data, args.device, folder, precision=precision, **settings)
                for precision in precisions
                for name, settings in variants.items()
            }
            found = compared({**plain, **ours}, args, [*plain], "× {}, float32", steps=args.steps)
            values["speed"] = {"default": best, **found}
            print(f"\nthe default here: {best}")
        if "connections" in args.only:
            values["connections"] = {}
            for precision in precisions:
                systems = {
                    spec: our_loop(args.data, args.device, folder, precision=precision, connection=spec)
                    for spec in CONNECTIONS
                }
                title, steps = f"{precision}, × {{}}", max(1, args.steps // 4)
                found = compared(systems, args, CONNECTIONS[:1], title, steps=steps)
                values["connections"][precision] = found["rows"]
    append_record(args.output, "vision_speed", values)


if __name__ == "__main__":
    main()
