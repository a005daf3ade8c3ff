"""A training step under PyTorch's own allocator, and under ours and RMM's, by each of the ways in.

    python benches/training_step.py [--peer FOLDER] [--runs N] [--steps N] [CONTESTANT ...]

A contestant is `torch`, PyTorch's allocator; `expandable`, the same with expandable segments; a stack, which is installed;
`current: STACK` and `mempool: STACK`, a stack that `change_current_allocator` or a `MemPool` takes; or `rmm`, a pool of the genuine
`rmm` that `change_current_allocator` takes. FOLDER has the unpacked wheels of rmm-cu13, librmm-cu13 and rapids-logger.

Six transformer layers (`TransformerEncoderLayer(512, 8, 2048)`, AdamW, batches of 16 sequences of 128 to 240). Each contestant runs in
processes of its own, in turns, so that a machine that changes its speed does it for all. Each line of the output is one figure, as JSON:
the median of the steps of one run in milliseconds, and the peak of what was reserved over the peak of what PyTorch had allocated, where
PyTorch knows both; at the end the median of the runs of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

#: The steps that a run makes before it measures: kernels are chosen and memory is taken in these.
WARM_UP = 8
CONTESTANTS = ["torch", "expandable", "pool | mapped", "pool(budget=1.05) | mapped"]
#: Whatever a contestant allocates from lives as long as the process.
KEPT: list[Any] = []


def prepare(who: str) -> contextlib.AbstractContextManager[Any]:
    """Has PyTorch allocate from a contestant, from here on or within what is returned."""
    import torch

    way, _, stack = who.rpartition(": ")
    if who in ("torch", "expandable"):
        pass
    elif who == "rmm":
        import rmm
        from rmm.allocators.torch import rmm_torch_allocator

        KEPT.append(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 64 << 20))
        rmm.mr.set_current_device_resource(KEPT[-1])
        torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    elif not way:
        import alluvion.torch

        alluvion.torch.install(stack, devices=[0])
    else:
        import alluvion
        from alluvion.rmm.allocators import torch as allocators

        KEPT.append(alluvion.resource(stack))
        alluvion.set_current_resource(KEPT[-1])
        if way == "mempool":
            KEPT.append(torch.cuda.MemPool(allocators.rmm_torch_pool_allocator.allocator()))
            return torch.cuda.use_mem_pool(KEPT[-1])
        assert way == "current", f"{who}: no way in is called {way}"
        torch.cuda.memory.change_current_allocator(allocators.rmm_torch_allocator)
    return contextlib.nullcontext()


def steps_of(count: int) -> list[float]:
    """The milliseconds of each step."""
    import torch

    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    times = []
    for turn in range(WARM_UP + count):
        batch = torch.randn(16, 128 + turn * 37 % 113, 512, device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = (net(batch) - batch.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    assert bool(torch.isfinite(loss)), "the step diverged"
    return times[WARM_UP:]


def run(who: str, steps: int) -> None:
    """Runs in a process of its own."""
    with prepare(who):
        times = steps_of(steps)
    figure: dict[str, Any] = {"who": who, "ms": statistics.median(times)}
    if ": " not in who and who != "rmm":
        import torch

        figure["reserved_over_allocated"] = torch.cuda.max_memory_reserved() / torch.cuda.max_memory_allocated()
    print(json.dumps(figure))


def environment_of(who: str, peer: str | None) -> dict[str, str]:
    environment = dict(os.environ)
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if who == "expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if who == "rmm" and peer:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.abspath(peer), environment.get("PYTHONPATH")]))
    return environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contestants", nargs="*", default=CONTESTANTS, metavar="CONTESTANT")
    parser.add_argument("--peer", help="the folder with the unpacked wheels of rmm")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--who", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.who:
        run(arguments.who, arguments.steps)
        return
    everybody: list[str] = arguments.contestants
    times: dict[str, list[float]] = {who: [] for who in everybody}
    for turn in range(arguments.runs):
        # The first process of a turn finds a colder device, so each contestant is first in its turn.
        begin = turn % len(everybody)
        for who in everybody[begin:] + everybody[:begin]:
            command = [sys.executable, __file__, "--who", who, "--steps", str(arguments.steps)]
            environment = environment_of(who, arguments.peer)
            ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            said = ran.stdout.splitlines()[-1]
            times[who].append(json.loads(said)["ms"])
            print(said, flush=True)
    for who, runs in times.items():
        print(json.dumps({"who": who, "median_ms": statistics.median(runs), "runs": len(runs)}), flush=True)


if __name__ == "__main__":
    main()
