"""Segments of a stack are registered with NCCL, through a pool of PyTorch's."""

import os
import subprocess
import sys

import pytest

import alluvion

torch = pytest.importorskip("torch")

#: One process and one rank: NCCL registers as with many. A segment that is there comes by the call, and one that comes later by its trace.
PROGRAM = """
import sys, torch, torch.distributed as dist, alluvion.torch

stack = alluvion.torch.install(sys.argv[1], devices=[0])[0]
device = torch.device("cuda", 0)
store = dist.HashStore()
dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=device)
backend = dist.group.WORLD._get_backend(device)
dist.all_reduce(torch.ones(1, device=device))
blocks, pool = stack.stats().current_count, torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    before = torch.full((1 << 20,), 3.0, device=device)
assert stack.stats().current_count > blocks, "the segment is of the stack"
backend.register_mem_pool(pool)
with torch.cuda.use_mem_pool(pool):
    after = torch.full((40 << 20,), 5.0, device=device)
for tensor, value in ((before, 3.0), (after, 5.0)):
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    assert bool((tensor == value).all())
backend.deregister_mem_pool(pool)
del before, after, tensor, pool
torch.cuda.empty_cache()
dist.destroy_process_group()
print("registered")
"""


@pytest.mark.parametrize("recipe", ["stats | pool | mapped(handles=fd)", "stats | pool | cuda"])
def test_a_pool_over_segments_of_a_stack_is_registered(recipe):
    if alluvion.device_count() == 0 or not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    if not torch.distributed.is_nccl_available():
        pytest.skip("this PyTorch has no NCCL")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NCCL_DEBUG": "WARN"}
    environment.pop("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", None)
    ran = subprocess.run([sys.executable, "-c", PROGRAM, recipe], capture_output=True, text=True, env=environment, timeout=180)
    assert ran.returncode == 0 and "registered" in ran.stdout, ran.stdout + ran.stderr
