"""Each symptom of fairseq's is there without the patch of it, and gone with all patches.

test_fairseq_programs.py, test_known_warnings.py and test_user_dir_names.py have the rest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy
import pytest
import torch

NUMPY = tuple(map(int, numpy.__version__.split(".")[:2]))

BF16 = """
from fairseq import options
for flags in ([], ["--cpu"], ["--tpu"], ["--bf16"], ["--memory-efficient-bf16"], ["--bf16", "--tpu"]):
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "transformer", *flags])
    print(*flags, args.bf16, args.tpu)
"""

WRAP = """
import os, torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.models import DistributedFairseqModel

meeting = "file://" + os.path.abspath("rendezvous")
torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
config = DistributedTrainingConfig()
config.tpu = False
group = torch.distributed.group.WORLD
model = DistributedFairseqModel(config, torch.nn.Linear(2, 2), group, torch.device("cpu"))
model(torch.ones(1, 2)).sum().backward()
print(config.ddp_backend, model.weight.grad.tolist())
torch.distributed.destroy_process_group()
"""

SPAWN = """
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed.utils import call_main

flags = ["--cpu", "--distributed-world-size", "2", "--distributed-backend", "gloo"]
args = options.parse_args_and_arch(options.get_training_parser(), ["data", "--arch", "transformer", *flags])
call_main(convert_namespace_to_omegaconf(args), print)
"""

ALIASES = """
import numpy as np
import torch
from fairseq.data import LanguagePairDataset, TokenBlockDataset
from fairseq.data.data_utils import compute_mask_indices, get_buckets
from fairseq.modules.dynamic_crf_layer import DynamicCRF

sentences = [torch.arange(4, 4 + length) for length in (2, 3, 3, 9)]
sizes = np.array([2, 3, 3, 9])

def masking():
    mask = compute_mask_indices((2, 40), None, 0.5, 4, no_overlap=True)
    return f"{mask.dtype} {mask.any()}"

def crf():
    layer, targets = DynamicCRF(8, low_rank=2, beam_size=4), torch.tensor([[1, 2, 3]])
    return layer(torch.randn(1, 3, 8), targets, torch.ones(1, 3, dtype=torch.bool)).isfinite().item()

def blocks():
    return TokenBlockDataset(sentences, sizes, None, pad=1, eos=2, break_mode="eos")[3].tolist()

def buckets():
    return get_buckets(sizes, 2).tolist()

def pairs():
    dictionary = type("Dictionary", (), {"pad": lambda self: 1, "eos": lambda self: 2, "unk": lambda self: 3})()
    return LanguagePairDataset(sentences, sizes, dictionary, num_buckets=2).bucketed_num_tokens.tolist()

np.random.seed(1)
torch.manual_seed(1)
for use in (masking, crf, blocks, buckets, pairs):
    try:
        print(use())
    except (AttributeError, TypeError) as error:
        print(str(error).partition(".")[0])
print(hasattr(np, "int"), hasattr(np, "compat"))
"""

FLAGS = """
import sys
from fairseq import options
sys.stderr = sys.stdout
for words in (["--arch", "transformer_rskip_ln"], ["--task", "translatoin"],
              ["--ddp-backend", "x"], ["--max-update", "abc"], ["--update-freq", "abc"], ["--max-tokens", "3"],
              ["--criterion", "label_smoothedcross"],
              ["--max_tokens", "3", "--arch", "transformer"]):
    sys.argv = ["fairseq-train", "data", *words]
    try:
        options.parse_args_and_arch(options.get_training_parser())
    except SystemExit as error:
        print(error.code)
"""

HUFFMAN = """
from fairseq.data.huffman import HuffmanCodeBuilder

builder = HuffmanCodeBuilder()
builder.add_symbols(*"abracadabra")
coder = builder.build_code()
print("".join(node.symbol for node in coder.decode(coder.encode("cab"))))
"""

MERGE = """
import numpy as np
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder

open("part.bin", "w").close()
with MMapIndexedDataset.Index.writer("part.idx", np.uint16) as index:
    index.write([2**30, 2**30, 1])
builder = MMapIndexedDatasetBuilder("all.bin", np.uint16)
builder.merge_file_("part")
builder.finalize("all.idx")
index = MMapIndexedDataset.Index("all.idx")
print(*(index[number][0] for number in range(3)))
"""

LINES = r"""
import os
from fairseq.data import Dictionary, IndexedRawTextDataset
from fairseq.file_chunker_utils import Chunker, find_offsets
from fairseq.tokenizer import tokenize_line
from fairseq_cli.interactive import buffered_read

def chunks(workers):
    offsets = find_offsets("text", workers)
    for part in zip(offsets, offsets[1:]):
        with Chunker("text", *part) as lines:
            yield from lines

with open("text", "w", encoding="utf-8", newline="") as file:
    file.write("\ufeffA man\rsleeps.\r\nIt\x85rains.\n")
print(*(list(chunks(workers)) for workers in (1, 2, 9)))
dictionary = Dictionary()
Dictionary.add_file_to_dictionary("text", dictionary, tokenize_line, 1)
print(dictionary.symbols[4:], dictionary.count[dictionary.eos()])
print(IndexedRawTextDataset("text", dictionary).lines)
print(list(buffered_read("text", 1)))
os.dup2(os.open("text", os.O_RDONLY), 0)
print(list(buffered_read("-", 9)))
with open("dict.txt", "w", encoding="utf-8", newline="") as file:
    file.write("\ufeffa 2\r\nb\rc 1\n")
print(Dictionary.load("dict.txt").symbols[4:])
"""

# from "s a b c e" to "s b d c d e", where s and e begin and end a sentence: delete a, insert d twice
EDITS = """
import torch
from fairseq.models.nat import insertion_transformer, levenshtein_utils

s, e, a, b, c, d = 0, 2, 4, 5, 6, 7
before, between, after = torch.tensor([[[s, a, b, c, e, 1], [s, b, c, e, 1, 1], [s, b, d, c, d, e]]]).unbind(1)
print(levenshtein_utils._get_del_targets(before, after, 1).tolist())
masks, masked, counts = levenshtein_utils._get_ins_targets(between, after, 1, 3)
print(masks.int().tolist(), masked.tolist(), counts.tolist())
print(insertion_transformer._get_ins_targets(between, after, 1, 3, 8)[0].nonzero().tolist())
"""

SEND = """
import argparse, os, torch
from fairseq.distributed import utils
from omegaconf import OmegaConf

rank = 1 if os.fork() == 0 else 0
meeting = "file://" + os.path.abspath("rendezvous")
torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
config = OmegaConf.create({"model": {"arch": "transformer"}})
state = {"cfg": config, "args": argparse.Namespace(seed=1), "model": [torch.arange(3)]}
try:
    got = utils.broadcast_object(state if rank == 0 else None, src_rank=0, group=torch.distributed.group.WORLD)
    text = str((got["cfg"] == config, got["args"], got["model"]))
except Exception as error:
    text = str(error)
if rank == 1:
    open("got", "w").write(text)
    os._exit(0)
os.wait()
print(open("got").read())
"""

REPEATS = """
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock

tokens = torch.tensor([[2, 5, 6, 5, 1, 1]])  # four decoded tokens, and room for two
print(NGramRepeatBlock(2)(tokens, torch.zeros(1, 8), 1, 1, 3).isinf().nonzero()[:, 1].tolist())
"""

DETECT = """
import torch
from fairseq.models import FairseqEncoder
from fairseq.nan_detector import NanDetector

class Encoder(FairseqEncoder):
    def __init__(self):
        super().__init__(None)
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return {"encoder_out": [self.layer(x)]}

model = Encoder()
with NanDetector(model):
    model(torch.ones(2, 2))["encoder_out"][0].log().sum().mul(float("inf")).backward()
"""

LOAD = """
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
state = load_checkpoint_to_cpu("checkpoint.pt")
print(state["cfg"]["model"].arch, state["extra_state"]["best"], state["extra_state"]["history"].tolist())
"""

LAYER = """
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

class Halved(TransformerEncoderLayerBase):
    def residual_connection(self, x, residual):
        return 0.5 * residual + x

config = TransformerConfig()
config.encoder.embed_dim, config.encoder.ffn_embed_dim, config.encoder.attention_heads = 8, 16, 2
config.dropout = 0.0
torch.manual_seed(1)
trained, loaded = Halved(config), Halved(config)
loaded.load_state_dict(trained.state_dict())

x = torch.randn(3, 3, 8)
with torch.no_grad():
    # batch first, no mask: the one case that the fast path gets through, with the plain residual
    print("overridden residual holds in evaluation:", torch.equal(trained.train()(x, None), loaded.eval()(x, None)))

trained.train()(torch.randn(3, 2, 8), None).sum().backward()
parameters = list(trained.parameters())
print("without gradient:", sum(p.requires_grad and p.grad is None for p in parameters), "of", len(parameters))

with torch.no_grad():
    loaded.eval()(torch.randn(3, 2, 8), torch.tensor([[False, False, True], [False, False, False]]))
print("padded batch: done")
"""

WRAPPED = """
import os, torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

meeting = "file://" + os.path.abspath("rendezvous")
torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
config = TransformerConfig()
config.encoder.embed_dim, config.encoder.ffn_embed_dim, config.encoder.attention_heads = 8, 16, 2
model = torch.nn.parallel.DistributedDataParallel(TransformerEncoderLayerBase(config))
for _ in range(2):
    model(torch.randn(3, 2, 8), None).sum().backward()
print("done")
torch.distributed.destroy_process_group()
"""

COPY = """
import os, shutil
from fairseq.file_io import PathManager

def killed(source, target):
    open(target, "w").write("half of the ne")
    raise KeyboardInterrupt

for name, content in (("new.pt", "the newest"), ("last.pt", "the one before")):
    open(name, "w").write(content)
copyfile, shutil.copyfile = shutil.copyfile, killed
try:
    PathManager.copy("new.pt", "last.pt", overwrite=True)
except KeyboardInterrupt:
    print(open("last.pt").read(), os.path.exists("last.pt.tmp"))
shutil.copyfile = copyfile
assert PathManager.copy("new.pt", "last.pt", overwrite=True)
print(open("last.pt").read())
"""

# a trainer with the members that `load_checkpoint` uses; it prints the path that it gets
RESUME = """
import os, shutil, torch
from types import SimpleNamespace
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

class Trainer:
    checkpoint_suffix, should_save_checkpoint_on_current_rank = "", True

    def load_checkpoint(self, path, *reset, **options):
        state = checkpoint_utils.load_checkpoint_to_cpu(path) if os.path.exists(path) else None
        print(path, state and state["optimizer_history"][-1]["num_updates"])

    def get_train_iterator(self, epoch, **options):
        return SimpleNamespace(epoch=epoch)

    def lr_step(self, epoch):
        pass

def resume(**flags):
    cfg = CheckpointConfig()
    for name, value in {"save_dir": "saved", "continue_once": None, **flags}.items():
        setattr(cfg, name, value)
    try:
        checkpoint_utils.load_checkpoint(cfg, Trainer())
    except (EOFError, OSError, RuntimeError, ValueError) as error:
        print(type(error).__name__, error)

def save(name, updates):
    history = [{"num_updates": updates, "criterion_name": "c", "lr_scheduler_state": {}}]
    state = {"cfg": None, "args": None, "model": {}, "optimizer_history": history}
    torch.save({**state, "extra_state": {"train_iterator": {"epoch": 1}}}, f"saved/{name}")

shutil.rmtree("saved", ignore_errors=True)
os.mkdir("saved")
"""

CUT = RESUME + """
save("checkpoint_last.pt", 30)
whole = open("saved/checkpoint_last.pt", "rb").read()
for name, updates in (("checkpoint2.pt", 20), ("checkpoint_2_24.pt", 24), ("checkpoint_best.pt", 10), ("other.pt", 99)):
    save(name, updates)
open("saved/checkpoint3.pt", "wb").write(whole[:-1])
resume()
for left in (0, 300):
    open("saved/checkpoint_last.pt", "wb").write(whole[:left])
    resume()
resume(restore_file="saved/checkpoint3.pt")
for name in os.listdir("saved"):
    open(f"saved/{name}", "wb").write(whole[:300])
resume()
"""

FOLDER = (
    "this is a folder; give a file in it, such as its checkpoint_best.pt (`rskip export fairseq` makes one from a "
    "model folder of rskip)"
)
PATHS = RESUME + """
resume()
resume(restore_file="elsewhere/checkpoint_last.pt")
resume(restore_file="missing.pt")
resume(continue_once="missing.pt")
resume(finetune_from_model="missing.pt")
for name in ("restore_file", "continue_once", "finetune_from_model"):
    resume(**{name: "saved"})
open("file", "w").close()
try:
    checkpoint_utils.verify_checkpoint_directory("file/saved")
except (OSError, ValueError) as error:
    print(type(error).__name__, error)
save("checkpoint_last.pt", 30)
resume(finetune_from_model="missing.pt")
"""

ONE_MODEL = """
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.trainer import Trainer
from fairseq_cli.train import should_stop_early

class Model(torch.nn.Linear):
    def load_state_dict(self, state, strict, model_cfg):
        return super().load_state_dict(state, strict)

    def set_num_updates(self, updates):
        pass

class OfOneModel(Trainer):
    model, device, tpu, is_fsdp = Model(1, 1), torch.device("cpu"), False, False

    def __init__(self, patience):
        self.cfg, self._criterion = FairseqConfig(), torch.nn.Identity()
        self.cfg.checkpoint.patience, self.cfg.distributed_training.distributed_world_size = patience, 1

    def state_dict(self):
        history = [{"num_updates": 1, "criterion_name": "c", "lr_scheduler_state": {}}]
        return {"model": self.model.state_dict(), "optimizer_history": history, "extra_state": {}}

    def lr_step(self, epoch):
        pass

    def get_num_updates(self):
        return 0

"""

PATIENCE = ONE_MODEL + """
def validations(*losses):
    return [should_stop_early(trainer.cfg, loss) for loss in losses]

trainer = OfOneModel(3)
print(validations(4.0, 5.0, 5.0))
trainer.save_checkpoint("checkpoint.pt", {"train_iterator": {"epoch": 1}})
vars(should_stop_early).clear()
trainer.load_checkpoint("checkpoint.pt", reset_optimizer=True)  # a new training, whose first result is the best
print(validations(5.0, 4.5))
vars(should_stop_early).clear()
trainer.load_checkpoint("checkpoint.pt")
print(validations(5.0))
OfOneModel(0).save_checkpoint("without.pt", {"train_iterator": {"epoch": 1}})
print(sorted(torch.load("without.pt")["extra_state"]))
"""

CLOCK = ONE_MODEL + """
from fairseq.logging import metrics

trainer = OfOneModel(0)
metrics.log_start_time("wall")
iterator = {"epoch": 1, "version": 2, "iterations_in_epoch": 1}
trainer.save_checkpoint("checkpoint.pt", {"train_iterator": iterator, "metrics": metrics.state_dict()})
trainer.load_checkpoint("checkpoint.pt")
print(metrics.get_meter("default", "wall").elapsed_time > 0)
"""

BEGINS = "begins an epoch: 'NoneType' object has no attribute 'next_epoch_itr'"
FINISHED = """
from types import SimpleNamespace
from fairseq_cli.train import train

for most, updates in ((3, 3), (3, 2), (0, 2)):
    cfg = SimpleNamespace(optimization=SimpleNamespace(max_update=most))
    try:
        print(train(cfg, SimpleNamespace(get_num_updates=lambda: updates), None, None))
    except AttributeError as error:
        print("begins an epoch:", error)
"""

UNKNOWN = """
from argparse import Namespace
from fairseq.models import build_model
from fairseq.tasks import setup_task

braces = {"eval_bleu_args": "{}"}
asked = [
    (build_model, Namespace(arch="mine", user_dir="folder", **braces)),
    (build_model, Namespace(_name="mine", **braces)),
    (setup_task, Namespace(_name="my_task")), (setup_task, Namespace(task="my_task", user_dir="folder")),
]
for build, cfg in asked:
    try:
        build(cfg, None) if build is build_model else build(cfg)
    except Exception as error:
        print(type(error).__name__, str(error).partition(" Available")[0])
"""

EMPTY = """
import torch
from fairseq.data.iterators import EpochBatchIterator

dataset = torch.utils.data.TensorDataset(torch.zeros(0))
iterator = EpochBatchIterator(dataset, collate_fn=list, batch_sampler=[])
try:
    iterator.first_batch
except Exception as error:
    print(type(error).__name__, error)
"""

VALIDATION = """
from types import SimpleNamespace
from fairseq_cli.train import train

for updates, disabled in ((0, False), (0, True), (2, False)):
    cfg = SimpleNamespace(
        optimization=SimpleNamespace(max_update=0),
        dataset=SimpleNamespace(disable_validation=disabled, valid_subset="valid,other"),
    )
    try:
        train(cfg, SimpleNamespace(get_num_updates=lambda: updates, get_valid_iterator=print), None, None)
    except AttributeError as error:
        print("begins an epoch:", error)
"""

LONG = """
from argparse import Namespace
import numpy
from fairseq.data import Dictionary, FairseqDataset
from fairseq.tasks.language_modeling import LanguageModelingTask

class Blocks(FairseqDataset):
    sizes = numpy.array([9, 9, 3])
    __len__ = lambda self: 3
    num_tokens = lambda self, index: self.sizes[index]

for mode, positions in (("none", 2), ("none", 4), ("none", 9), ("eos", 2), ("eos", 4)):
    task = LanguageModelingTask(Namespace(sample_break_mode=mode), Dictionary())
    try:
        print(mode, positions, len(task.eval_lm_dataloader(dataset=Blocks(), max_positions=positions, num_workers=0)))
    except Exception as error:
        print(type(error).__name__, error)
"""

HALF = """
import torch
from fairseq.optim import FP16Optimizer

parameters = [torch.nn.Parameter(torch.ones(2, dtype=torch.float16))]
print(FP16Optimizer.build_fp32_params(None, parameters, flatten=False)[0].dtype)
try:
    FP16Optimizer.build_fp32_params(None, iter(parameters))
except (ValueError, RuntimeError, AssertionError) as error:  # AssertionError if PyTorch is built without CUDA
    print(type(error).__name__, error)
"""

ALIGN = """
from argparse import Namespace
import torch
from fairseq import utils
from fairseq_cli import generate, interactive

flags = {"replace_unk": None, "print_alignment": None, "path": None, "buffer_size": 0}
refused = ({"replace_unk": "@@ "}, {"replace_unk": "dictionary"}, {"print_alignment": "soft"})
for program in (generate, interactive):
    for each in (*refused, {"print_alignment": "hard"}):
        try:
            program.main(Namespace(**flags | each))
        except Exception as error:  # flags that are not refused fail later, because --path and --task are missing
            print(program.__name__, each.get("replace_unk"), each.get("print_alignment"), type(error).__name__)
for words, alignment in (("a <unk>", [(0, 0)]), ("a <unk>", None), ("a b", None), ("a <unk>", torch.tensor([0, 1]))):
    try:
        print(utils.replace_unk(words, "ein Haus", alignment, {"Haus": "house"}, "<unk>"))
    except Exception as error:
        print(type(error).__name__)
"""

SIDES = """
import contextlib, io, sys
from pathlib import Path
from fairseq import options
from fairseq_cli import preprocess, score

for name, lines in (("train.en", "a\\nb\\n"), ("train.de", "a\\nb"), ("test.en", "a\\n"), ("test.de", "a\\nb\\n"),
                    ("train.align", "0-0\\n")):
    Path(name).write_text(lines)
for flags in ("--trainpref train", "--trainpref train --testpref train,test",
              "--trainpref train --testpref train,test --only-source", "--trainpref train --align-suffix align"):
    argv = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary", *flags.split()]
    args = options.get_preprocessing_parser().parse_args([*argv, "--destdir", flags.replace("-", "").replace(" ", "")])
    try:
        preprocess.main(args)
        print(sorted(path.name for path in Path(args.destdir).glob("t*.bin")))
    except Exception as error:
        print(type(error).__name__, error)
        print(Path(args.destdir).exists())
for translations in ("train.en", "test.en"):
    sys.argv = ["fairseq-score", "--sys", translations, "--ref", "train.de"]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            score.cli_main()
        print("scored")
    except Exception as error:
        print(type(error).__name__, error)
"""

CASES = [  # patch, code; what it prints with all patches (None: not run), and what it says without this one
    (
        "bf16", BF16,
        "False False\n--cpu False False\n--tpu False True\n--bf16 True False\n--memory-efficient-bf16 True False\n"
        "--bf16 --tpu True True\n",
        ["--bf16 True True\n--memory-efficient-bf16 True True\n"],
    ),
    ("cpu-ddp", WRAP, "pytorch_ddp [[1.0, 1.0], [1.0, 1.0]]\n", ["DataParallel device_ids and output_device argumen"]),
    (
        "numpy-aliases", ALIASES,
        "bool True\nTrue\n[4, 5, 6, 7, 8, 9, 10, 11, 12]\n[3, 9]\n[3, 3, 3, 9]\nFalse False\n",
        [
            "module 'numpy' has no attribute 'int'\nmodule 'numpy' has no attribute 'float'\n"
            "module 'numpy' has no attribute 'compat'\n",
            *(["percentile() got an unexpected keyword argument 'interpolation'\n"] if NUMPY >= (2, 4) else []),
        ],
    ),
    ("bitarray-rindex", HUFFMAN, "cab\n", ["has no attribute 'rindex'"]),
    ("index-offsets", MERGE, "0 2147483648 4294967296\n", ["0 -2147483648 0\n"]),
    (
        "line-ends", LINES,
        "['A man\\rsleeps.\\n', 'It\\x85rains.\\n'] ['A man\\rsleeps.\\n', 'It\\x85rains.\\n'] "
        "['A man\\rsleeps.\\n', 'It\\x85rains.\\n']\n['A', 'It', 'man', 'rains.', 'sleeps.'] 3\n"
        "['A man\\rsleeps.', 'It\\x85rains.']\n[['A man\\rsleeps.'], ['It\\x85rains.']]\n"
        "[['A man\\rsleeps.', 'It\\x85rains.']]\n['a', 'b\\rc']\n",
        ["['\\ufeffA man\\n', 'sleeps.\\n', 'It\\x85rains.\\n'] [", "['\\ufeffA man', 'sleeps.', 'It\\x85rains.']"],
    ),
    (
        "unequal-sides", SIDES,
        "['train.en-de.de.bin', 'train.en-de.en.bin']\n"
        "UsageError the files have different numbers of lines (test.en 1, test.de 2): expected equal numbers, since "
        "line n of one translates line n of the other; find the missing line\nFalse\n"
        "['test.en-de.en.bin', 'test1.en-de.en.bin', 'train.en-de.en.bin']\n"
        "UsageError the files have different numbers of lines (train.en 2, train.de 2, train.align 1): expected equal "
        "numbers, since line n of one translates line n of the other; find the missing line\nFalse\nscored\n"
        "UsageError the files of --sys and --ref have different numbers of lines: expected equal numbers, since line n "
        "of one translates line n of the other; find the missing line\n",
        ["['test.en-de.de.bin', 'test.en-de.en.bin', 'test1"],
    ),
    (
        "libnat", EDITS,
        "[[0, 1, 0, 0, 0, 0]]\n[[0, 0, 1, 0, 1, 0]] [[0, 5, 3, 6, 3, 2]] [[0, 1, 1, 0, 0]]\n[[0, 1], [1, 7], [2, 7]]\n",
        ["cannot import name 'libnat'"],
    ),
    (
        "broadcast-object", SEND, "(True, Namespace(seed=1), [tensor([0, 1, 2])])\n",
        ["Unsupported global: GLOBAL omegaconf.dictconfig.DictConfig"],
    ),
    ("cut-checkpoints", COPY, "the one before False\nthe newest\n", ["half of the ne "]),
    (
        "cut-checkpoints", CUT,
        "saved/checkpoint_last.pt 30\nsaved/checkpoint_last.pt 24\nsaved/checkpoint_last.pt 24\n"
        "UsageError saved/checkpoint3.pt is not a checkpoint, or is truncated: give another checkpoint\n"
        "UsageError saved/checkpoint_last.pt is truncated, and no other checkpoint is intact: "
        "delete it to train from the beginning\n",
        ["saved/checkpoint_last.pt 30\nEOFError "],
    ),
    (
        "checkpoint-paths", PATHS,
        "saved/checkpoint_last.pt None\nelsewhere/checkpoint_last.pt None\n"
        "UsageError --restore-file is missing.pt: file not found; give a checkpoint or leave it out\n"
        "UsageError --continue-once is missing.pt: file not found; give a checkpoint or leave it out\n"
        "UsageError --finetune-from-model is missing.pt: file not found; give a checkpoint or leave it out\n"
        f"UsageError --restore-file is saved: {FOLDER}\n"
        f"UsageError --continue-once is saved: {FOLDER}\n"
        f"UsageError --finetune-from-model is saved: {FOLDER}\n"
        "UsageError --save-dir is file/saved: Not a directory; give a folder to write to\n"
        "saved/checkpoint_last.pt 30\n",
        ["missing.pt None\nmissing.pt None\nValueError --finetune", "IsADirectoryError", "NotADirectoryError"],
    ),
    (
        "patience", PATIENCE, "[False, False, False]\n[False, False]\n[True]\n['train_iterator']\n",
        ["[False, False, False]\n[False, False]\n[False]\n"],
    ),
    ("training-time", CLOCK, "True\n", ["False\n"]),
    (
        "finished-training", FINISHED,
        f"([None], True)\n{BEGINS}\n{BEGINS}\n",
        [f"{BEGINS}\n{BEGINS}\n{BEGINS}\n"],
    ),
    (
        "unknown-models", UNKNOWN,
        "UsageError the checkpoint's model mine is unknown: give --user-dir folder (in Python: user_dir=...)\n"
        "UsageError the checkpoint's model mine is unknown: give the --user-dir of its training run "
        "(in Python: user_dir=...)\n"
        "UsageError the checkpoint's task my_task is unknown: give the --user-dir of its training run "
        "(in Python: user_dir=...)\n"
        "UsageError the checkpoint's task my_task is unknown: give --user-dir folder (in Python: user_dir=...)\n",
        ["IndexError Replacement index 1", "AssertionError Could not infer task", "KeyError 'my_task'"],
    ),
    (
        "wrong-flags", FLAGS,
        "".join(
            f"fairseq-train: error: {line} (see fairseq-train --help)\n2\n"
            for line in (
                "--arch is transformer_rskip_ln, which is unknown: give the --user-dir that defines it, such as "
                "--user-dir rskip",
                "--task is translatoin, which is unknown: did you mean translation?",
                "--ddp-backend is x: expected c10d, fully_sharded, legacy_ddp, no_c10d, pytorch_ddp, slowmo",
                "argument --max-update: expected a whole number, got 'abc'",
                "argument --update-freq: expected a number, or several separated by commas, got 'abc'",
                "--arch is missing: give one, such as --arch transformer_rskip_ln with --user-dir rskip",
                "--criterion is label_smoothedcross, which is unknown: did you mean label_smoothed_cross_entropy?",
                "--max_tokens is an unknown flag: did you mean --max-tokens?",
            )
        ),
        ["usage: "],
    ),
    (
        "empty-data", EMPTY,
        "UsageError no example fits a batch: give more data, or a larger --max-tokens, "
        "--max-source-positions or --max-target-positions\n",
        ["Exception The dataset is empty"],
    ),
    (
        "empty-data", VALIDATION, f"valid\nother\n{BEGINS}\n{BEGINS}\n{BEGINS}\n",
        [f"{BEGINS}\n{BEGINS}\n{BEGINS}\n"],
    ),
    (
        "empty-data", LONG,
        "UsageError 3 of 3 samples are longer than the model's 2 positions: give --tokens-per-sample 2\n"
        "UsageError 2 of 3 samples are longer than the model's 4 positions: give --tokens-per-sample 4\n"
        "none 9 1\n"
        "UsageError 3 of 3 samples are longer than the model's 2 positions: "
        "give --sample-break-mode none --tokens-per-sample 2\n"
        "eos 4 1\n",
        ["none 2 0\nnone 4 1\n"],
    ),
    (
        "fp16-on-cpu", HALF,
        "torch.float32\nUsageError --fp16 needs a GPU, but training runs on the CPU: use --bf16, or leave --fp16 out\n",
        ["torch.float32\nRuntimeError " if torch.version.cuda else "torch.float32\nAssertionError"],
    ),
    (
        "alignments", ALIGN,
        "".join(
            f"fairseq_cli.{program} {flag} {error}\n"
            for program, soft in (("generate", "AssertionError"), ("interactive", "UsageError"))
            for flag, error in (
                ("@@  None", "UsageError"), ("dictionary None", "AssertionError"), ("None soft", soft),
                ("None hard", "AssertionError"),
            )
        ) + "UsageError\nUsageError\na b\na house\n",
        ["fairseq_cli.interactive @@  None AssertionError"],
    ),
    ("nan-detector", DETECT, "", ["StopIteration"]),
    ("ngram-repeats", REPEATS, "[6]\n", ["[]\n"]),
    ("safe-globals", LOAD, "transformer 0.25 [1, 2]\n", ["Weights only load failed"]),
    (
        "encoder-fast-path", LAYER,
        "overridden residual holds in evaluation: True\nwithout gradient: 0 of 24\npadded batch: done\n",
        ["in evaluation: False\nwithout gradient: 8 of 24\n", "Mask Type should be defined"],
    ),
    pytest.param(
        "encoder-fast-path", WRAPPED, "done\n", ["Expected to have finished reduction in the prior iteration"],
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "dataclass-defaults", "import fairseq", "", ["mutable default <class 'fairseq.dataclass.configs.CommonConfig'"],
        marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 lets fairseq's dataclasses pass"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "code", "printed", "symptoms"), CASES)
def test_with_all_patches_the_symptom_is_gone(python, tmp_path, patch, code, printed, symptoms):
    save_checkpoint(tmp_path)
    process = python(code)
    assert process.stdout == printed, process.stderr


# test_fairseq_programs.py shows that it is gone
SPAWNED = ("cpu-spawn", SPAWN, None, ["world size is 2 but have 0 available devices"])


@pytest.mark.slow
@pytest.mark.parametrize(("patch", "code", "printed", "symptoms"), [*CASES, SPAWNED])
def test_without_its_patch_the_symptom_is_there(python, tmp_path, patch, code, printed, symptoms):
    save_checkpoint(tmp_path)
    process = python(code, without=patch, CUDA_VISIBLE_DEVICES="")
    for symptom in symptoms:
        assert symptom in process.stdout + process.stderr


def save_checkpoint(folder: Path) -> None:
    """What fairseq 0.12.2 saves, as far as loading looks at it, with a metric that NumPy computed."""
    state = {
        "cfg": {"model": argparse.Namespace(arch="transformer"), "task": {"_name": "translation"}},
        "args": None,
        "model": {"weight": torch.zeros(2)},
        "optimizer_history": [{"num_updates": 1, "criterion_name": "c", "lr_scheduler_state": {}}],
        "extra_state": {
            "best": numpy.float64(0.25),
            "history": numpy.array([1, 2]),
            "train_iterator": {"epoch": 1},
        },
    }
    torch.save(state, folder / "checkpoint.pt")


def test_scalars_pickled_by_numpy_1_and_2_load(python, tmp_path):
    """The two name the function that restores a scalar differently; protocol 2 is torch.save's."""
    array = numpy.array([0.5, 1.5], dtype=numpy.float32)
    torch.save({"scalar": numpy.int64(3), "array": array}, tmp_path / "either.pt")
    process = python(
        """
        import zipfile, fairseq, torch
        for core in (b"numpy.core", b"numpy._core"):
            with zipfile.ZipFile("either.pt") as old, zipfile.ZipFile("renamed.pt", "w") as new:
                for item in old.infolist():
                    content = old.read(item)
                    if item.filename.endswith("data.pkl"):
                        for name in (b"numpy._core.multiarray", b"numpy.core.multiarray"):
                            content = content.replace(name, core + b".multiarray")
                    new.writestr(item, content)
            content = torch.load("renamed.pt")
            print(content["scalar"], content["array"])
        """
    )
    assert process.stdout == "3 [0.5 1.5]\n" * 2, process.stderr


def test_meters_that_fairseq_0_5_to_0_9_pickled_load(python, tmp_path):
    process = python(
        """
        import fairseq, torch
        from fairseq.logging.meters import AverageMeter, StopwatchMeter, TimeMeter

        for kind in (AverageMeter, StopwatchMeter, TimeMeter):
            kind.__module__ = "fairseq.meters"
        torch.save([AverageMeter(), StopwatchMeter(), TimeMeter(init=3)], "old.pt")
        meters = torch.load("old.pt")
        print(meters[0].count, meters[1].sum, meters[2].init)
        """
    )
    assert process.stdout == "0 0 3\n", process.stderr


def test_weights_only_stays_on(python, tmp_path):
    """A pickle that runs a program is refused, and nothing is run."""
    process = python(
        """
        import os, fairseq, torch

        class Program:
            def __reduce__(self):
                return os.mkdir, ("made",)

        torch.save({"model": Program()}, "checkpoint.pt")
        from fairseq.checkpoint_utils import load_checkpoint_to_cpu
        load_checkpoint_to_cpu("checkpoint.pt")
        """
    )
    assert process.returncode == 1
    assert "Weights only load failed" in process.stderr
    assert not (tmp_path / "made").exists()


def test_configurations_may_be_defaults_of_dataclasses_and_other_objects_may_not(python):
    """fairseq's own as instances, so that its code finds what it reads; users' too."""
    process = python(
        """
        import dataclasses
        before = dataclasses.dataclass
        from fairseq.dataclass import FairseqDataclass
        from fairseq.dataclass.configs import CommonConfig, FairseqConfig
        assert dataclasses.dataclass is before
        field = FairseqConfig.__dataclass_fields__["common"]
        print(type(field.default) is CommonConfig, field.default_factory is dataclasses.MISSING)
        print(CommonConfig() == CommonConfig(), CommonConfig(seed=2) == CommonConfig())

        @dataclasses.dataclass
        class Mine(FairseqDataclass):
            width: int = 3

        @dataclasses.dataclass
        class Outer(FairseqDataclass):
            mine: Mine = Mine()

        print(Outer().mine.width)

        @dataclasses.dataclass
        class Plain:
            width: int = 3

        try:
            @dataclasses.dataclass
            class Other:
                plain: Plain = Plain()
        except ValueError as error:
            print(str(error).partition(" <")[0])
        else:
            print("allowed")
        """,
        fairseq=False,
    )
    plain = "mutable default" if sys.version_info >= (3, 11) else "allowed"
    assert process.stdout == f"True True\nTrue False\n3\n{plain}\n", process.stderr
