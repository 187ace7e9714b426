"""The compiled kernels compute what PyTorch does, with every processor's instructions."""

from __future__ import annotations

import copy
import ctypes
import math
import os
import shutil
import signal
import subprocess
import sys
from importlib import metadata
from itertools import product
from pathlib import Path
from threading import Thread

import pytest
import torch
from torch import nn

import rskip.cpu.library
import rskip.cpu.structures
from rskip.cpu import find_library
from rskip.cpu.library import Found, Library
from rskip.cpu.linear import native_linear
from rskip.cpu.loss import cross_entropy_, log_softmax
from rskip.cpu.packing import PackedMap, PackedMap8
from rskip.cpu.program import KERNEL_ACTIVATIONS, residual_arguments
from rskip.cpu.structures import Arguments, Attention, LogSoftmax, Seen
from rskip.kernel_forms import NormalisedSum
from rskip.settings.errors import SettingError
from rskip.transformer.layers import ACTIVATIONS

FILES = sorted(Path(rskip.cpu.library.__file__).parent.glob("_kernels*.so"))
LEVELS = ["plain", "AVX2", "AVX-512", "AVX-512 with bfloat16"]
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "rskip/cpu/source"


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler to compile them with")
def test_they_are_compiled_where_there_is_a_compiler():
    assert FILES


@pytest.fixture(params=range(4), ids=LEVELS)
def library(request):
    """The kernels with each processor's instructions; those chosen last stay so for all, so the default is restored."""
    if not FILES:
        pytest.skip("the kernels are not compiled here")
    found = Library(FILES[0], request.param)
    if found.instructions != LEVELS[request.param]:
        pytest.skip("this processor has no such instructions")
    yield found
    Library(FILES[0], 3)


def close(found, expected, dtype):
    torch.testing.assert_close(found.float(), expected.float(), rtol=TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_cross_entropy_and_its_gradient(library, dtype):
    for words in (1, 5, 16, 203):
        torch.manual_seed(words)
        logits = (20 * torch.randn(6, words)).to(dtype)
        if words > 1:
            logits[4, 0] = -math.inf
        logits[5, 0] = math.nan
        labels = torch.randint(words, (6,))
        labels[4] = words - 1
        exact = logits.float().log_softmax(1)
        expected = exact.exp().scatter_add(1, labels[:, None], torch.full((6, 1), -0.75))
        for with_gradient in (False, True):
            found = logits.clone()
            nll, normalisers = cross_entropy_(library, found, labels, confidence=0.75, with_gradient=with_gradient)
            kwargs = {"rtol": 2e-6, "atol": 2e-5, "equal_nan": True}
            torch.testing.assert_close(nll, -exact.gather(1, labels[:, None])[:, 0], **kwargs)
            torch.testing.assert_close(normalisers, logits.float().logsumexp(1), **kwargs)
            wanted = expected if with_gradient else logits.float()
            torch.testing.assert_close(found.float(), wanted, rtol=TOLERANCE[dtype], atol=2e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_log_softmax_and_its_gradient(library, dtype, monkeypatch):
    for words in (1, 16, 203):
        monkeypatch.setattr("rskip.cpu.loss.native_library", lambda tensor: library)
        torch.manual_seed(words)
        logits = (10 * torch.randn(2, 3, words)).to(dtype)
        weights = torch.randn(2, 3, words)
        results = []
        for of in (log_softmax, lambda x: x.float().log_softmax(-1)):
            x = logits.clone().requires_grad_()
            y = of(x)
            (y * weights).sum().backward()
            results.append((y.detach(), x.grad))
        torch.testing.assert_close(results[0][0], results[1][0], rtol=2e-6, atol=2e-5)
        close(results[0][1], results[1][1], dtype)
        expanded = logits.clone().requires_grad_()
        log_softmax(expanded).sum().backward()  # whose gradient is one number
        assert torch.isfinite(expanded.grad).all()


@pytest.mark.skipif(not FILES, reason="the kernels are not compiled here")
def test_gradients_of_log_softmaxs_gradients_are_refused():
    x = torch.randn(2, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match="RSKIP_NATIVE=off"):
        torch.autograd.grad(log_softmax(x).square().sum(), x, create_graph=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_attention_over_the_slots_that_a_beam_sees(library, dtype):
    for heads, features in ((4, 32), (2, 64), (13, 10), (3, 16), (1, 7)):
        torch.manual_seed(heads)
        sentences, beams, slots, width = 3, 2, 40, heads * features
        query, new_key, new_value = torch.randn(3, sentences * beams, width).to(dtype)
        key, value = torch.randn(2, 5, slots, width).to(dtype)  # of five places, three of which are used
        place = torch.tensor([4, 0, 2], dtype=torch.int32)
        seen = torch.rand(sentences, beams, slots).argsort(-1).int()
        counts = torch.tensor([37, 1, 16], dtype=torch.int32)
        output, weights = torch.empty_like(query), torch.empty(sentences, beams, slots)
        before = key.clone(), value.clone()
        whose = Seen(
            place=place, slots=seen, counts=counts, slots_sentence=beams * slots, slots_beam=slots, beams=beams
        )  # fmt: skip
        arguments = Attention(
            seen=whose, query=query, key=key, value=value, new_key=new_key, new_value=new_value, output=output,
            weights=weights, slots_per_place=slots, weights_beam=slots, heads=heads, features=features,
        )  # fmt: skip
        library.attend(arguments, sentences)
        for sentence, beam in product(range(sentences), range(beams)):
            row, own = sentence * beams + beam, seen[sentence, beam, : counts[sentence]].long()
            place_keys, place_values = before[0][place[sentence]].clone(), before[1][place[sentence]].clone()
            for each in range(beams):  # each beam's last slot is written first
                last = seen[sentence, each, counts[sentence] - 1]
                place_keys[last], place_values[last] = (
                    new_key[sentence * beams + each],
                    new_value[sentence * beams + each],
                )
            q, k, v = (
                each.float().view(-1, heads, features).transpose(0, 1)
                for each in (query[row], place_keys[own], place_values[own])
            )
            probabilities = (q @ k.transpose(1, 2) / math.sqrt(features)).softmax(-1)  # (heads, 1, count)
            close(output[row], (probabilities @ v).transpose(0, 1).flatten(), dtype)
            expected = torch.zeros(slots).index_put((own,), probabilities.mean(0)[0])
            close(weights[sentence, beam], expected, torch.float32)
        assert torch.equal(key[[1, 3]], before[0][[1, 3]])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_connections_with_their_norms(library, dtype, kind):
    torch.manual_seed(0)
    for features, (count, scale, branch_scale) in product((1, 15, 16, 130), ((0, 2, 1), (1, 1, 0.5), (3, 1, 1))):
        x, f = torch.randn(2, 5, features).mul(3).to(dtype)
        norms = [kind(features, eps=0.1) for _ in range(count)]
        for parameter in (each for norm in norms for each in norm.parameters()):
            nn.init.uniform_(parameter, 0.5, 1.5)
        norms = [norm.to(dtype) for norm in norms]
        y = branch_scale * f.double()
        for norm in norms:
            y = copy.deepcopy(norm).double()(scale * x.double() + y)
        stated = NormalisedSum(norms=norms, scale=scale, branch_scale=branch_scale)
        library.residual(residual_arguments(stated, x, f, f), 5)
        close(f, y if count else scale * x.double() + y, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_linear_maps(library, dtype):
    for inputs, outputs in ((1, 1), (16, 4), (33, 7), (128, 130)):
        torch.manual_seed(inputs)
        weight, bias = torch.randn(outputs, inputs).to(dtype), torch.randn(outputs).to(dtype)
        without, packed = PackedMap(library, weight, None), PackedMap(library, weight, bias)
        for rows in (1, 3, 4, 29):
            x = torch.randn(rows, inputs).to(dtype)
            expected = x.double() @ weight.double().T
            tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype] * math.sqrt(inputs)}
            found = native_linear(library, without, x)
            torch.testing.assert_close(found.double(), expected, **tolerance)
            found = native_linear(library, packed, x[None])[0]
            torch.testing.assert_close(found.double(), expected + bias.double(), **tolerance)
            for row in range(rows):  # whatever stands beside it
                assert torch.equal(native_linear(library, packed, x[row]), found[row])


def test_linear_maps_in_8_bits(library):
    """Exactly what the integers give, and rows of extreme ones don't overflow."""
    for inputs, outputs in ((1, 1), (6, 33), (130, 64)):
        if not library.largest_weight:
            pytest.skip("these instructions have no such products")
        torch.manual_seed(inputs)
        weight = torch.randint(-library.largest_weight, library.largest_weight + 1, (outputs, inputs)).to(torch.int8)
        scales, bias = torch.rand(outputs), torch.randn(outputs)
        for rows, given in ((1, bias), (29, None)):
            x = torch.randint(-library.largest_row, library.largest_row + 1, (rows, inputs)).float()
            x[:, -1] = library.largest_row  # so that rows are their own integers
            if rows > 1:
                x[1], weight[-1] = library.largest_row, library.largest_weight
            packed = PackedMap8(library, weight, scales, given)
            expected = x.double() @ weight.double().T * scales + (0 if given is None else given)
            found = native_linear(library, packed, x)
            torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_activations(library, dtype, name):
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([-1e4, -100.0, 100.0, 1e4])]).to(dtype)
    packed, output = PackedMap(library, torch.ones(3, 1).to(dtype), None), x.new_empty(len(x), 3)
    arguments = packed.native_arguments(x[:, None].contiguous())
    arguments.point("output", output)
    arguments.activation = KERNEL_ACTIVATIONS[name]
    library.map(arguments, len(x), work=1)
    expected = ACTIVATIONS[name](x.double())[:, None].expand_as(output)
    torch.testing.assert_close(output.double(), expected, rtol=TOLERANCE[dtype], atol=5e-7)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_what_is_no_number_stays_so(library, dtype):
    x = torch.ones(3, 20).to(dtype)
    x[1, 7], x[2, 3] = math.nan, math.inf
    weight, norm, f = torch.ones(5, 20).to(dtype), nn.LayerNorm(20).to(dtype), x.clone()
    library.residual(residual_arguments(NormalisedSum(norms=[norm]), x, f, f), 3)
    found = [native_linear(library, PackedMap(library, weight, None), x), f]
    if library.largest_weight:
        packed = PackedMap8(library, weight.to(torch.int8), torch.ones(5), None)
        found.append(native_linear(library, packed, x.float()))
    for y in found:
        assert y.isfinite().all(1).tolist() == [True, False, False]


def test_many_rows_are_shared_among_threads(library):
    packed, x = PackedMap(library, torch.randn(7, 16), None), torch.randn(90, 16)
    expected = native_linear(library, packed, x)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        output = torch.zeros_like(expected)
        arguments = packed.native_arguments(x)
        arguments.point("output", output)
        library.map(arguments, 90, work=2**30)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(output, expected)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("loads", [False, True])
def test_a_fork_of_a_process_has_threads_of_its_own(library, loads):
    """PyTorch's wait for work in the first process only, also if the fork is the first to load the kernels."""
    packed, x = PackedMap(library, torch.randn(7, 16), None), torch.randn(90, 16)
    expected, output = native_linear(library, packed, x), torch.zeros(90, 7)
    arguments = packed.native_arguments(x)
    arguments.point("output", output)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.relu(torch.ones(2**20))
        if not (child := os.fork()):
            signal.alarm(20)
            if loads:
                library = Library(FILES[0], LEVELS.index(library.instructions))
            library.map(arguments, 90, work=2**30)
            os._exit(output.tolist() != expected.tolist())
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(threads)


def test_an_exception_of_a_signal_waits_for_all_threads(library):
    """After Ctrl-C ends a kernel's call, no thread still writes."""

    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    def signal_once_begun():
        while not output[0, 0]:
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    logits = torch.zeros(64, 2**19)
    output = torch.zeros_like(logits)
    arguments = LogSoftmax(logits=logits, log_probabilities=output, words=2**19)
    threads, handler = torch.get_num_threads(), signal.signal(signal.SIGUSR1, interrupt)
    sender = Thread(target=signal_once_begun)
    try:
        torch.set_num_threads(8)
        sender.start()
        with pytest.raises(Interrupted):
            library.log_softmax(arguments, 64, work=2**30)
            sender.join()
        assert (output[:, -1] != 0).all()
    finally:
        torch.set_num_threads(threads)
        sender.join()
        signal.signal(signal.SIGUSR1, handler)


@pytest.fixture
def search():
    """`find_library` anew, as in a fresh process."""
    yield find_library.__wrapped__
    if FILES:
        Library(FILES[0], 3)


def test_the_environment_bounds_what_is_used(search, monkeypatch):
    monkeypatch.setenv("RSKIP_NATIVE", "off")
    assert search() == Found(None, "RSKIP_NATIVE=off")
    monkeypatch.setenv("RSKIP_NATIVE", "sse")
    with pytest.raises(SettingError, match="RSKIP_NATIVE"):
        search()
    if FILES:
        monkeypatch.setenv("RSKIP_NATIVE", "plain")
        assert search().library.instructions == "plain"


def test_a_library_that_is_missing_or_damaged_or_another_is_done_without(search, tmp_path, monkeypatch):
    def refused(reason):
        with pytest.warns(UserWarning, match="the compiled kernels were not loaded, so PyTorch computes more slowly: "):
            problem = search().problem
        assert f"({reason})" in problem and "install rskip again" in problem and "\n" not in problem

    monkeypatch.setattr(rskip.cpu.library, "__file__", str(tmp_path / "library.py"))
    monkeypatch.setattr(metadata, "distributions", lambda name: [])
    assert "install a C compiler" in search().problem
    copy = Path(tmp_path, "_kernels.so")
    copy.write_bytes(b"no library" * 9)
    refused("invalid ELF header")
    if FILES:
        copy.write_bytes(FILES[0].read_bytes())
        monkeypatch.setattr(rskip.cpu.structures.constants, "ATTEND", 99)
        refused("it was compiled from the source of another version")


@pytest.mark.skipif(not FILES, reason="the kernels are not compiled here")
def test_python_in_the_root_of_a_clone_uses_the_kernels_of_the_installed_package(search, tmp_path, monkeypatch):
    monkeypatch.setattr(rskip.cpu.library, "__file__", str(tmp_path / "clone/library.py"))
    kernels, info = tmp_path / "rskip/cpu/_kernels.abi3.so", tmp_path / "rskip-0.1.0.dist-info"
    kernels.parent.mkdir(parents=True)
    info.mkdir()
    shutil.copy(FILES[0], kernels)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rskip\nVersion: 0.1.0\n")
    (info / "RECORD").write_text("rskip/cpu/library.py,,\nrskip/cpu/_kernels.abi3.so,,\n")
    found = [metadata.PathDistribution(info)]
    monkeypatch.setattr(metadata, "distributions", lambda name: found)
    assert search().library is not None
    kernels.unlink()
    assert "install a C compiler" in search().problem


def test_a_structure_of_another_size_is_another_version(library, monkeypatch):
    """tests/cpu/test_arguments.py compares the fields."""
    fields = [*Seen._fields_, ("more", ctypes.c_int64)]
    changed = type("Changed", (ctypes.Structure,), {"_structure": "seen", "_fields_": fields})
    kinds = [changed if each is Seen else each for each in Arguments.__subclasses__()]
    monkeypatch.setattr(Arguments, "__subclasses__", lambda: kinds)
    with pytest.raises(OSError, match="it was compiled from the source of another version"):
        Library(FILES[0], 3)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """`sanitized(PROGRAM, OPTIONS...)` links the kernels with sanitizers, which end it at a step outside memory."""
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc, whose sanitizers this needs")
    folder = tmp_path_factory.mktemp("sanitized")
    gcc = ["gcc", "-g", "-O0", "-fPIC", "-Wno-psabi", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    gcc.append("-DCACHED_WEIGHTS=4096")  # weights in several pieces

    def run(*words):
        subprocess.run([*gcc, f"-I{SOURCE}", *map(str, words)], cwd=folder, check=True, capture_output=True)

    library = SOURCE / "library.c"  # whose threads `bounds.c` starts: the options may be for it
    best = LEVELS.index(Library(FILES[0], 3).instructions) if FILES else 3
    unused = {SOURCE / name for name in ("avx2.c", "avx512.c", "avx512bf16.c")[best:]}  # most of the compilation
    run("-c", *sorted(set(SOURCE.glob("*.c")) - {library} - unused))
    if unused:
        run("-c", "-fno-sanitize=all", *sorted(unused))
    return lambda program, *options: run(library, *options, *folder.glob("*.o"), "-o", program, "-lm", "-pthread")


@pytest.mark.slow
def test_nothing_is_read_or_written_beside_what_was_given(sanitized, tmp_path):
    """tests/cpu/bounds.c runs every kernel on memory of the exact size, for many shapes and failing threads."""
    sanitized(tmp_path / "bounds", "-Dpthread_create=create_or_refuse", ROOT / "tests/cpu/bounds.c")
    done = subprocess.run([str(tmp_path / "bounds")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "plain" in done.stdout


@pytest.mark.slow
def test_no_argument_of_a_python_entry_point_makes_a_kernel_read_or_write_elsewhere(sanitized, tmp_path):
    """tests/cpu/random_calls.py passes random shapes, types and indices."""
    sanitized(tmp_path / "_kernels.so", "-shared")
    names = ("libasan.so", "libubsan.so", "libstdc++.so")  # they need libstdc++, because PyTorch throws its exceptions
    found = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]
    environment = {**os.environ, "LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, str(ROOT / "tests/cpu/random_calls.py"), str(tmp_path), "1000"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    for entry in ("translate", "search", "linear_maps", "losses", "eight_bits", "train"):
        assert f"'{entry} done'" in done.stdout and f"'{entry} refused'" in done.stdout, done.stdout


OUTPUTS = ROOT / "tests/cpu/outputs.c"
ARM, WINDOWS = "aarch64-linux-gnu-gcc", "x86_64-w64-mingw32-gcc"


def outputs(program: list[str], level: int) -> list[tuple[str, list[float]]]:
    """The lines of tests/cpu/outputs.c: a kernel's name and its numbers."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # the program frees little
    done = subprocess.run([*program, str(level)], check=True, capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    return [(name, [float(each) for each in values]) for name, *values in map(str.split, lines)]


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """Links a C program with the kernels for Arm, and gives the command that an emulated processor runs."""
    if not (shutil.which(ARM) and shutil.which("qemu-aarch64") and shutil.which("gcc")):
        pytest.skip(f"needs gcc, {ARM} and qemu-aarch64: packages gcc-aarch64-linux-gnu and qemu-user of Debian")
    folder = tmp_path_factory.mktemp("arm")
    options = ["-O3", "-Wall", "-Wno-psabi", "-Werror", f"-I{SOURCE}"]
    sources = map(str, sorted(SOURCE.glob("*.c")))
    subprocess.run([ARM, *options, "-c", *sources], check=True, cwd=folder)

    def program(source):
        path = folder / source.stem
        objects = map(str, sorted(folder.glob("*.o")))
        command = [ARM, "-static", *options, str(source), *objects, "-o", str(path), "-lm", "-pthread"]
        subprocess.run(command, check=True)
        return ["qemu-aarch64", "-cpu", "max", str(path)]

    return program


@pytest.mark.slow
def test_an_arm_processor_computes_the_same(arm, sanitized, tmp_path):
    """tests/cpu/outputs.c by an emulated processor, with and without 8-bit dot products, against this one."""
    emulator = arm(OUTPUTS)
    sanitized(tmp_path / "here", OUTPUTS)
    for level in (0, 1):
        found, expected = outputs(emulator, level), outputs([str(tmp_path / "here")], level)
        assert {"attend", "best's-tokens", "search", "map8" if level else "map"} <= {name for name, _ in found}
        for (name, ours), (other, theirs) in zip(found, expected, strict=True):
            assert name == other and ours == pytest.approx(theirs, rel=1e-4, abs=1e-5), name


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(WINDOWS), reason=f"needs {WINDOWS}: package gcc-mingw-w64-x86-64 of Debian")
def test_the_kernels_compile_for_windows(tmp_path):
    options = ["-O0", "-shared", "-Wall", "-Wno-psabi", "-Werror", *map(str, sorted(SOURCE.glob("*.c")))]
    subprocess.run([WINDOWS, *options, "-o", str(tmp_path / "kernels.dll"), "-pthread"], check=True)
