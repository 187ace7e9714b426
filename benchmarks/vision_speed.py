"""Speed of PreAct-ResNet-20 on CIFAR-10: plain PyTorch loops with torchvision's data compared with ours.

speed: the plain loop has the same model class, torchvision's CIFAR10, its transforms (RandomCrop, RandomHorizontalFlip,
ToTensor, Normalize) and a DataLoader, with and without workers. Ours is an iteration of `rskip vision train`; its
default on this machine is printed.
evaluation: the published `2rskip+ln` model on test images, compared with a similar plain loop with the same errors.
connections: the cost of each connection relative to 1xskip.
depths: depths 20 and 110 as in `rskip vision train`, by default and with --compile. Milliseconds per iteration and peak
GPU memory, one system after the other.

All other systems alternate in one process, with training batches of 128. A ratio compares times of the same round; the
median over rounds is reported. bfloat16 is skipped on a CPU that only emulates it. Prints tables and appends one JSON
line to study/results/benchmarks/vision_speed.jsonl.

    python benchmarks/vision_speed.py --data FOLDER [--rounds 7] [--steps 20] [--only speed evaluation connections]
    python benchmarks/vision_speed.py --device cuda --only depths connections

FOLDER contains cifar-10-batches-py. Without it only connections and depths are measured, on random bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max, ratios
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

from rskip.machine.device import bfloat16_is_slow, set_gpu_arithmetic, usable_device
from rskip.vision import preact_resnet20
from rskip.vision.data import ImageSet, load_dataset
from rskip.vision.datasets import DATASETS
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import load_model
from rskip.vision.settings import TrainingSettings
from rskip.vision.training import Start, TrainingFolder, image_training

BATCH, TEST_BATCH = 128, 500
PUBLISHED = Path(__file__).resolve().parents[1] / "checkpoints" / "cifar10_resnet20/preact20_2rskip_ln"
CONNECTIONS = (
    "1xskip", "2xskip", "1xskip+bn", "1xskip+ln", "2xskip+ln", "wskip+ln", "2rskip+ln", "3rskip+ln", "2rskip+bn",
    "2rskip+rms", "sas:alpha_bias=3,beta_bias=-3", "sas:gate=single", "highway",
)  # fmt: skip
WARM_UP = 3  # steps per system that do not count

PARTS = ("speed", "evaluation", "connections", "depths")
NEED_DATA = ("speed", "evaluation")
DEPTHS, DEPTHS_CONNECTIONS = (20, 110), ("1xskip", "2rskip+ln", "sas")

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


def our_loop(
    data: Path | None, device: torch.device, folder: Path, *, batch_size: int = BATCH, **settings: Any
) -> Step:
    """One iteration of `rskip vision train`."""
    images, test_images = (
        random_images(train=train) if data is None else load_dataset("cifar10", data, train=train)
        for train in (True, False)
    )
    chosen = TrainingSettings(batch_size=batch_size, **settings)
    start = Start(settings=chosen, files=TrainingFolder(folder), seed=1, device=device)
    return image_training(start, images, test_images).step


def plain_evaluation(data: Path, device: torch.device, *, workers: int, count: int) -> Callable[[], int]:
    """The errors of the published model on the first `count` test images."""
    normalise = transforms.Normalize(DATASETS["cifar10"].mean, DATASETS["cifar10"].std)
    transform = transforms.Compose([transforms.ToTensor(), normalise])
    dataset = Subset(datasets.CIFAR10(str(data), train=False, transform=transform), range(count))
    loader = DataLoader(dataset, TEST_BATCH, num_workers=workers, persistent_workers=workers > 0)
    model = load_model(PUBLISHED)[0].to(device)

    def errors() -> int:
        wrong = 0
        with torch.no_grad():
            for images, labels in loader:
                wrong += int((model(images.to(device)).argmax(dim=1) != labels.to(device)).sum())
        return wrong

    return errors


def our_evaluation(data: Path, device: torch.device, *, precision: str, count: int) -> Callable[[], int]:
    """The same errors with the code of `rskip vision evaluate`, which also computes other metrics."""
    model, whole = load_model(PUBLISHED)[0], load_dataset("cifar10", data, train=False)
    images = ImageSet(whole.images[:count], whole.labels[:count], whole.classes)

    def errors() -> int:
        found = evaluate(
            model, images, dataset="cifar10", batch_size=TEST_BATCH, device=device, precision=precision
        )
        return round(found.error * count / 100)

    return errors


def measure(
    systems: Mapping[str, Step], device: torch.device, *, rounds: int, steps: int
) -> dict[str, list[float]]:
    """Seconds of `steps` iterations of each system; the systems alternate."""

    def seconds(step: Step, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    for step in systems.values():
        seconds(step, WARM_UP)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, step in systems.items():
            times[name].append(seconds(step, steps))
    return times


def depths(
    device: torch.device, folder: Path, *, precisions: list[str], batch_size: int, rounds: int, steps: int
) -> list[dict[str, Any]]:
    """Each depth, connection and way to compute an iteration, one at a time, so that memory is measured separately."""
    ways: dict[str, dict[str, Any]] = {"default": {}}
    if device.type == "cuda":
        ways |= {"compile": {"compile": True}}
    found = []
    for depth, connection, precision, way in itertools.product(DEPTHS, DEPTHS_CONNECTIONS, precisions, ways):
        compiled = (DEPTHS[0], precisions[-1])  # compiling 110 layers takes minutes
        if way == "compile" and ((depth, precision) != compiled or connection == "2rskip+ln"):
            continue
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        torch.compiler.reset()
        row: dict[str, Any] = {"depth": depth, "connection": connection, "precision": precision, "way": way}
        try:
            step = our_loop(
                None, device, folder, batch_size=batch_size, depth=depth, connection=connection, precision=precision,
                iterations=390, **ways[way],  # no last batch: compiles once
            )  # fmt: skip
            times = measure({way: step}, device, rounds=rounds, steps=steps)[way]
        except Exception as error:  # a failure on this GPU is a result too
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        else:
            milliseconds = [1000 * each / steps for each in times]
            row["ms"] = median_min_max(milliseconds, 3)
            row["images_per_second"] = round(1000 * batch_size / statistics.median(milliseconds), 1)
            if device.type == "cuda":
                row["peak_MiB"] = round(torch.cuda.max_memory_allocated(device) / 2**20)
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def compared(
    systems: Mapping[str, Step], args: argparse.Namespace, plain: Sequence[str], title: str, *, steps: int, images: int
) -> dict[str, Any]:
    """Images per second, and their ratio to the fastest of `plain`. `images` is the number of images per round."""
    times = measure(systems, args.device, rounds=args.rounds, steps=steps)
    baseline = min(plain, key=lambda name: statistics.median(times[name]))
    found = []
    print(f"\n| {title.format(baseline)} | images/s | ratio (min to max) |\n|---|---|---|")
    for name, seconds in times.items():
        rate, ratio = images / statistics.median(seconds), median_min_max(ratios(times, baseline, name), 3)
        found.append({"system": name, "images_per_second": round(rate, 1), "ratio": ratio})
        print("| {} | {} | {:.2f} ({:.2f} to {:.2f}) |".format(name, round(rate, 1), *ratio))
    return {"baseline": baseline, "rows": found}


def main() -> None:
    parser = benchmark_parser(__doc__, "vision_speed")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder with cifar-10-batches-py")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="iterations per round; a quarter of that for connections")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to measure (default: all except depths)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--batch-size", type=int, default=BATCH, help="batch size for depths (default: %(default)s)")
    args = parser.parse_args()
    if args.only is None:
        args.only = PARTS[:3]
    if args.data is None and set(args.only) & set(NEED_DATA):
        print(f"not measured: {' and '.join(NEED_DATA)} need --data FOLDER; --only connections depths don't")
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
            images = BATCH * args.steps
            found = compared({**plain, **ours}, args, [*plain], "× {}, float32", steps=args.steps, images=images)
            values["speed"] = {"default": best, **found}
            print(f"\nthe default here: {best}")
        if "evaluation" in args.only:
            count = min(10_000, max(1, BATCH * args.steps // TEST_BATCH) * TEST_BATCH)
            evaluations = {
                f"plain loop, {n} workers": plain_evaluation(args.data, args.device, workers=n, count=count)
                for n in (0, 2)
            } | {
                f"ours, {precision}": our_evaluation(args.data, args.device, precision=precision, count=count)
                for precision in precisions
            }
            errors = {name: each() for name, each in evaluations.items()}
            assert len({number for name, number in errors.items() if "bfloat16" not in name}) == 1, errors
            title = "evaluation, × {}, float32"
            found = compared(evaluations, args, [*evaluations][:2], title, steps=1, images=count)
            values["evaluation"] = {"images": count, "errors": errors, **found}
        if "connections" in args.only:
            values["connections"] = {}
            for precision in precisions:
                systems = {
                    spec: our_loop(args.data, args.device, folder, precision=precision, connection=spec)
                    for spec in CONNECTIONS
                }
                steps = max(1, args.steps // 4)
                title, images = f"{precision}, × {{}}", BATCH * steps
                found = compared(systems, args, CONNECTIONS[:1], title, steps=steps, images=images)
                values["connections"][precision] = found["rows"]
        if "depths" in args.only:
            values["depths"] = depths(
                args.device, folder, precisions=precisions, batch_size=args.batch_size, rounds=args.rounds,
                steps=args.steps,
            )  # fmt: skip
    append_record(args.output, "vision_speed", values)
    print(f"\n{json.dumps({key: values[key] for key in PARTS if key in values})}")


if __name__ == "__main__":
    main()
