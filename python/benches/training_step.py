"""A training step under PyTorch's own allocator and under installed stacks.

    python benches/training_step.py [--runs N] [--steps N] [STACK ...]

Six transformer layers (`TransformerEncoderLayer(512, 8, 2048)`, AdamW, batches of 16 sequences of 128 to 240). PyTorch's allocator, the
same with expandable segments, and each stack run in processes of their own, in turns, so that a machine that changes its speed does it
for all. Each line of the output is one figure, as JSON: the median of the steps of one run in milliseconds, and what was reserved over
what was allocated, both at their peaks; at the end the median of the runs of each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

#: The steps that a run makes before it measures: kernels are chosen and memory is taken in these.
WARM_UP = 8
STACKS = ["pool | mapped", "pool(budget=1.05) | mapped"]


def step(who: str, steps: int) -> None:
    """Runs in a process of its own."""
    if who not in ("torch", "expandable"):
        import alluvion.torch

        alluvion.torch.install(who, devices=[0])
    import torch

    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    times = []
    for turn in range(WARM_UP + steps):
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
    peaks = torch.cuda.max_memory_reserved() / torch.cuda.max_memory_allocated()
    print(json.dumps({"who": who, "ms": statistics.median(times[WARM_UP:]), "reserved_over_allocated": peaks}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stacks", nargs="*", default=STACKS, metavar="STACK")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--who", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.who:
        step(arguments.who, arguments.steps)
        return
    everybody = ["torch", "expandable", *arguments.stacks]
    times: dict[str, list[float]] = {who: [] for who in everybody}
    for turn in range(arguments.runs):
        # The first process of a turn finds a colder device, so each allocator is first in its turn.
        for who in everybody[turn % len(everybody) :] + everybody[: turn % len(everybody)]:
            environment = dict(os.environ)
            environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
            if who == "expandable":
                environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
            command = [sys.executable, __file__, "--who", who, "--steps", str(arguments.steps)]
            ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            said = ran.stdout.splitlines()[-1]
            times[who].append(json.loads(said)["ms"])
            print(said, flush=True)
    for who, runs in times.items():
        print(json.dumps({"who": who, "median_ms": statistics.median(runs), "runs": len(runs)}), flush=True)


if __name__ == "__main__":
    main()
