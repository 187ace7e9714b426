"""Stands for fairseq-train: logs as it does, "trains" an epoch at a time, goes on from the epochs there are.

FAKE_FAIL, FAKE_DIVERGE, FAKE_HANG: the epoch after which it fails, diverges, hangs. FAKE_CHECKPOINT: what it saves.
"""

import json
import os
import pathlib
import shutil
import sys
import time


def log(tag: str, **values: object) -> None:
    print("2026-01-01 00:00:00 | INFO |", tag, "|", json.dumps(values), flush=True)


option = dict(zip(sys.argv[2:], [*sys.argv[3:], ""], strict=True))
folder = pathlib.Path(option["--save-dir"])
with open("calls.jsonl", "a") as calls:
    calls.write(json.dumps({"argv": sys.argv[1:], "threads": os.environ["OMP_NUM_THREADS"]}) + "\n")
print("... | INFO | fairseq_cli.train | num. shared model params: 1,234 (num. trained: 1,234)", flush=True)
done = len(list(folder.glob("checkpoint?.pt")))
if "--probe-file" in option:
    pathlib.Path(option["--probe-file"]).write_text(f"every {option['--probe-every']} from {done + 1}\n")
for epoch in range(done + 1, int(option["--max-epoch"]) + 1):
    updates, wall = str(epoch * 7), str(10 * (epoch - done))
    loss = str(5 - epoch + 0.5 * (option["--seed"] == "1"))
    log("valid", epoch=epoch, valid_loss=loss, valid_nll_loss="3", valid_ppl="8", valid_num_updates=updates)
    shutil.copy(os.environ["FAKE_CHECKPOINT"], folder / f"checkpoint{epoch}.pt")
    shutil.copy(os.environ["FAKE_CHECKPOINT"], folder / "checkpoint_last.pt")
    figures = {"train_loss": "6", "train_wps": "500", "train_num_updates": updates, "train_lr": "0.1"}
    log("train", epoch=epoch, **figures, train_wall=wall)
    if os.environ.get("FAKE_FAIL") == str(epoch):
        print("Traceback (most recent call last):\n  File ...\nRuntimeError: the disk is full\nbye")
        sys.exit(1)
    if os.environ.get("FAKE_DIVERGE") == str(epoch):
        log("train_inner", num_updates=str(epoch * 7 + 3), wall=wall)
        print("fairseq-train: error: the training diverged: gradients are Nan/Inf")
        sys.exit(8)
    if os.environ.get("FAKE_HANG") == str(epoch):
        pathlib.Path("hanging").write_text(str(os.getpid()))
        time.sleep(120)
