"""PyTorch's tensors in a stack of ours: all of its allocator, with our memory."""

import gc
import math
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import alluvion
import alluvion.torch

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def before():
    """A tensor from before the installation."""
    if alluvion.device_count() == 0:
        pytest.skip("there is no GPU")
    return torch.full((1000,), 7.0, device="cuda")


@pytest.fixture(scope="module", autouse=True)
def stack(before):
    stacks = alluvion.torch.install("stats | pool(checked=true) | mapped", devices=[0])
    yield stacks[0]


@pytest.fixture(autouse=True)
def nothing_left(stack):
    """No test leaves a block of ours, or a segment, behind."""
    live = stack.stats().current_count
    yield
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    assert stack.stats().current_count == live


def run(program, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)


def test_tensors_are_ours_and_figures_are_right(stack, before):
    torch.cuda.reset_peak_memory_stats()
    had, blocks = torch.cuda.memory_allocated(), stack.stats().current_count
    one = torch.ones(1000, device="cuda")
    assert torch.cuda.memory_allocated() - had == 4096 and stack.stats().current_count == blocks + 1
    two = torch.ones(5 * MIB, device="cuda", dtype=torch.uint8)
    assert torch.cuda.memory_reserved() == stack.pool_status()["reserved_bytes"] + 2 * MIB >= torch.cuda.memory_allocated()
    assert float(one.sum()) == 1000 and int(two.sum(dtype=torch.int64)) == 5 * MIB and float(before.sum()) == 7000
    del one, two
    assert torch.cuda.memory_allocated() == had and torch.cuda.max_memory_allocated() >= had + 5 * MIB
    assert "Active memory" in torch.cuda.memory_summary()
    empty = torch.empty(0, device="cuda")
    assert empty.data_ptr() == 0


def test_a_snapshot_shows_every_block(stack):
    tensors = [torch.empty(size, device="cuda", dtype=torch.uint8) for size in (1, 512, 513, 3 * MIB, 100_000)]
    del tensors[2]
    segments, stats = torch.cuda.memory_snapshot(), torch.cuda.memory_stats()
    for name in ("allocated", "active", "requested"):
        assert sum(each[f"{name}_size"] for each in segments) == stats[f"{name}_bytes.all.current"]
    assert sum(each["total_size"] for each in segments) == stats["reserved_bytes.all.current"]
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        starts = [block["address"] for block in segment["blocks"]]
        assert starts == sorted(starts) and starts[0] == segment["address"]
    live = {block["address"] for each in segments for block in each["blocks"] if block["state"] == "active_allocated"}
    assert {each.data_ptr() for each in tensors} <= live


def test_the_history_names_who_allocates(tmp_path):
    torch.cuda.memory._record_memory_history(max_entries=8)
    try:
        kept = torch.empty(12_345, device="cuda", dtype=torch.uint8)
        for _ in range(20):
            torch.empty(3 * MIB + 1, device="cuda", dtype=torch.uint8)
        snapshot = torch.cuda.memory._snapshot()
        path = tmp_path / "snapshot.pickle"
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    trace = snapshot["device_traces"][0]
    assert [each["action"] for each in trace[-3:]] == ["alloc", "free_requested", "free_completed"] and len(trace) <= 16
    # What was asked for, and not the length of the block: as PyTorch's own.
    assert [each["size"] for each in trace[-3:]] == [3 * MIB + 1] * 3
    assert any("test_torch_installed" in frame["filename"] for frame in trace[-3]["frames"])
    assert {each["compile_context"] for each in trace} == {"N/A"}
    times = [each["time_us"] for each in trace]
    assert times == sorted(times)
    blocks = [block for each in snapshot["segments"] for block in each["blocks"] if block["address"] == kept.data_ptr()]
    assert any("test_torch_installed" in frame["filename"] for frame in blocks[0]["frames"])
    assert pickle.loads(path.read_bytes())["segments"]
    assert torch.cuda.memory._snapshot()["device_traces"][0] == []


def test_too_much_is_the_exception_of_torch_with_our_report(stack):
    had = torch.cuda.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 9313.23 GiB.*Pool of gpu 0 refused"):
        torch.empty(10**13, device="cuda", dtype=torch.uint8)
    with pytest.raises(torch.OutOfMemoryError, match="more than 1EB"):
        torch.empty(1 << 61, device="cuda", dtype=torch.uint8)
    assert torch.cuda.memory_stats()["num_ooms"] == had + 1
    total = torch.cuda.mem_get_info()[1]
    half = [torch.empty(total // 2, device="cuda", dtype=torch.uint8)]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total // 2, device="cuda", dtype=torch.uint8)
    half.clear()
    torch.empty(total // 2, device="cuda", dtype=torch.uint8)


def test_memory_that_a_private_pool_had_serves_a_large_request():
    total = torch.cuda.mem_get_info()[1]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        torch.empty(total // 2, device="cuda", dtype=torch.uint8)
    del pool
    torch.empty(total * 3 // 5, device="cuda", dtype=torch.uint8)


def test_a_fraction_of_the_device_is_a_limit():
    free = torch.empty(64 * MIB, device="cuda", dtype=torch.uint8)
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="set_per_process_memory_fraction"):
            torch.empty(int(total * 0.01), device="cuda", dtype=torch.uint8)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.empty(int(total * 0.01), device="cuda", dtype=torch.uint8).numel() > free.numel()


@pytest.mark.parametrize("where", ["ours", "pool"])
def test_a_recorded_stream_holds_a_block_back(where):
    side, pool = torch.cuda.Stream(), torch.cuda.MemPool()
    torch.cuda.synchronize()
    if where == "ours":
        tensor = torch.zeros(8 * MIB, device="cuda", dtype=torch.uint8)
    else:
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.zeros(8 * MIB, device="cuda", dtype=torch.uint8)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        total = tensor.sum(dtype=torch.int64)
    tensor.record_stream(side)
    address = tensor.data_ptr()
    had = torch.cuda.memory_stats()["active_bytes.all.current"]
    del tensor
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == had
    if where == "ours":
        other = torch.ones(8 * MIB, device="cuda", dtype=torch.uint8)
    else:
        with torch.cuda.use_mem_pool(pool):
            other = torch.ones(8 * MIB, device="cuda", dtype=torch.uint8)
    assert other.data_ptr() != address
    torch.cuda.synchronize()
    assert int(total) == 0
    del other
    torch.empty(1, device="cuda")
    del pool


def test_a_graph_replays_over_segments_of_ours(stack):
    had = stack.stats().current_bytes
    given = torch.ones(MIB, device="cuda")
    used = torch.full((MIB,), 2.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = (given * used).sum()
        # A block of ours that is freed while its stream captures.
        lost = torch.empty(0, device="cuda")
        del lost
    assert stack.stats().current_bytes > had + 2 * 4 * MIB
    for value in (3.0, 4.0):
        given.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert float(result) == value * 2 * MIB
    del graph, result


def test_a_block_that_is_freed_in_a_capture_waits_for_its_end(stack):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = torch.ones(MIB, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            doubled = tensor * 2
            blocks = stack.stats().current_count
            del tensor
            assert stack.stats().current_count == blocks
    assert stack.stats().current_count == blocks - 1
    del graph, doubled


def test_pools_that_share_and_outlive(stack):
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    given = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(first):
        one = given + 1
    with torch.cuda.graph(second, pool=first.pool()):
        two = given + 2
    del first
    second.replay()
    torch.cuda.synchronize()
    assert float(two.sum()) == 3000
    del second, one, two


def test_a_pool_has_its_own_snapshot_and_goes(stack):
    blocks = stack.stats().current_count
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.arange(3 * MIB, device="cuda")
    outside = torch.ones(10, device="cuda")
    assert sum(each["allocated_size"] for each in pool.snapshot()) >= 24 * MIB
    assert int(tensor[-1]) == 3 * MIB - 1 and float(outside.sum()) == 10
    del tensor, outside, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert stack.stats().current_count == blocks


def test_a_model_learns_as_it_does_elsewhere():
    from torch_work import infer, model, train

    net = model()
    losses, answers = train(net), infer(net)
    assert all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0]
    assert max(answers) - min(answers) <= 1e-2 * abs(answers[0]) + 1e-3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
# PyTorch begins a pool of graphs by a capture of nothing, and warns of it itself.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_compiled_graphs_with_checkpoints():
    def work(x):
        return (x * 2 + 1).relu().sum(dim=1)

    torch._inductor.config.compile_threads = 1
    compiled = torch.compile(work, mode="reduce-overhead")
    with torch.no_grad():
        for turn in range(6):
            given = torch.full((64, 64), float(turn), device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(given).clone(), work(given))
    del compiled, given
    torch.compiler.reset()
    gc.collect()


def test_bare_allocations_and_a_large_one():
    address = torch.cuda.caching_allocator_alloc(1000)
    assert address and torch.cuda.memory_allocated() >= 1024
    torch.cuda.caching_allocator_delete(address)


def test_threads_with_streams_of_their_own(stack):
    failed = []

    def work(seed):
        stream = torch.cuda.Stream()
        generator = torch.Generator().manual_seed(seed)
        kept = []
        with torch.cuda.stream(stream):
            for turn in range(300):
                size = int(torch.randint(1, 200_000, (1,), generator=generator))
                kept.append((torch.full((size,), seed * 1000 + turn, device="cuda", dtype=torch.int64), seed * 1000 + turn))
                if len(kept) > 10:
                    tensor, value = kept.pop(turn % 7)
                    if not bool((tensor == value).all()):
                        failed.append((seed, turn))
            stream.synchronize()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []


def test_a_copy_to_the_host_and_workers(tmp_path):
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    total = sum(float(batch.to("cuda", non_blocking=True).sum()) for (batch,) in loader)
    assert total == 63 * 32


def test_weights_sleep_and_a_graph_of_them_replays(stack):
    with alluvion.tag("weights"):
        weights = torch.randn(1024, 1024, device="cuda")
    given = torch.randn(16, 1024, device="cuda")
    (given @ weights).sum()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = given @ weights
    graph.replay()
    torch.cuda.synchronize()
    expected, address = result.clone(), weights.data_ptr()
    for _ in range(20):
        torch.cuda.synchronize()
        with stack.sleep("weights") as sleeper:
            assert sleeper.is_asleep and sleeper.bytes == 4 * MIB
        result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, expected) and weights.data_ptr() == address
    del sleeper, graph, result


def test_uninstalling_needs_all_memory_back(stack):
    with pytest.raises(RuntimeError, match="installed already"):
        alluvion.torch.install("cuda")
    kept = torch.ones(10, device="cuda")
    with pytest.raises(RuntimeError, match=r"it stays installed, because memory of it is in use: \d+ blocks"):
        alluvion.torch.uninstall()
    assert alluvion.torch.installed()[0] is stack and float(kept.sum()) == 10


AROUND = """
import alluvion.torch, gc, torch
with_before = torch.ones(10, device="cuda")
for turn in range(3):
    stacks = alluvion.torch.install("stats | pool | cuda", devices=[0])
    tensor = torch.ones(1000, device="cuda")
    assert stacks[0].stats().current_count == 1 and float(tensor.sum()) == 1000
    gc.collect()
    del tensor
    alluvion.torch.uninstall()
    assert alluvion.torch.installed() is None
    assert stacks[0].stats().current_count == 0
    torch.ones(1000, device="cuda")
    assert stacks[0].stats().total_count > 0
print("done", float(with_before.sum()))
"""


def test_installing_and_uninstalling_again():
    ended = run(AROUND)
    assert (ended.returncode, ended.stdout) == (0, "done 10.0\n"), ended.stderr


BETWEEN = """
import alluvion.torch, torch
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    early = torch.ones(1000, device="cuda")
    alluvion.torch.install("stats | pool | mapped", devices=[0])
late = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    again = torch.ones(1000, device="cuda")
    try:
        alluvion.torch.uninstall()
    except RuntimeError as error:
        print(error)
alluvion.torch.uninstall()
with torch.cuda.use_mem_pool(late):
    tensor = torch.ones(1000, device="cuda")
# Made while it was installed, used and freed after.
side = torch.cuda.Stream()
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(100_000_000)
    total = again.sum()
again.record_stream(side)
address = again.data_ptr()
del again
with torch.cuda.use_mem_pool(pool):
    other = torch.zeros(1000, device="cuda")
print(other.data_ptr() != address, float(total), float(early.sum() + tensor.sum()))
torch.cuda.caching_allocator_enable(False)
plain = torch.ones(1000, device="cuda")
del other, tensor
torch.cuda.caching_allocator_enable(True)
del plain
graph = torch.cuda.CUDAGraph()
alluvion.torch.install("stats | pool | mapped", devices=[0])
with torch.cuda.graph(graph):
    result = early + 1
graph.replay()
torch.cuda.synchronize()
print(float(result.sum()))
try:
    torch.cuda.caching_allocator_delete(12345 << 20)
except RuntimeError:
    print("refused")
"""


def test_pools_and_tensors_of_before_between_and_after():
    ended = run(BETWEEN)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "it stays installed, because memory of it is in use: 0 blocks, 0 segments of graphs and pools of PyTorch's, and 1 pools that are open",
        "True 1000.0 2000.0",
        "2000.0",
        "refused",
    ], ended.stderr


DEADLOCK = """
import alluvion.torch, threading, torch
alluvion.torch.install("pool | mapped", devices=[0])
ended = threading.Event()
def ask():
    while not ended.is_set():
        torch.cuda.memory_allocated()
thread = threading.Thread(target=ask)
thread.start()
for _ in range(200):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        storage = torch.UntypedStorage(4 << 20, device="cuda")
    del storage, pool
ended.set()
thread.join()
print("done")
"""


def test_the_interpreter_and_the_lock_of_pytorch_do_not_meet():
    ended = run(DEADLOCK)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "while PYTORCH_NO_CUDA_MEMORY_CACHING is set"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "PyTorch's allocator is cudaMallocAsync in this process"),
    ],
)
def test_an_allocator_that_cannot_be_decorated_is_named(setting, said):
    ended = run("import torch, alluvion.torch\ntorch.ones(1, device='cuda')\nalluvion.torch.install('cuda')", **setting)
    assert ended.returncode == 1 and said in ended.stderr


SHARED = """
import alluvion.torch, torch, torch.multiprocessing as mp

def child(queue, answers):
    tensor = queue.get()
    answers.put(float(tensor.sum()))
    del tensor

if __name__ == "__main__":
    alluvion.torch.install("{recipe}", devices=[0])
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    tensor = torch.full((1000,), 3.0, device="cuda")
    other = torch.full((1000,), 4.0, device="cuda")
    torch.cuda.synchronize()
    try:
        other.untyped_storage()._share_cuda_()
    except RuntimeError as error:
        print(error)
        raise SystemExit(0)
    worker = context.Process(target=child, args=(queue, answers))
    worker.start()
    queue.put(other)
    print(answers.get(timeout=60))
    worker.join()
"""


@pytest.mark.parametrize(("recipe", "printed"), [("pool | cuda", "4000.0"), ("pool | mapped", "take a source that allocates by `cudaMalloc`")])
def test_a_tensor_of_cuda_malloc_is_shared_with_another_process(tmp_path, recipe, printed):
    program = tmp_path / "shared.py"
    program.write_text(SHARED.format(recipe=recipe))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, timeout=120)
    assert printed in ended.stdout, ended.stderr
