"""One stack under libcudf, cuML and PyTorch, with one limit that RMM's pool and PyTorch's own do not fit in together.

(not run: it needs a GPU, PyTorch, and pylibcudf with its RMM; and cuML or pylibraft, or it leaves one step out)
    python examples/rapids/one_stack.py [ROWS]

Tables are joined and grouped, cuML finds clusters of the sums (or pylibraft, where there is no cuML, the eigenvalues of a graph of them), then
a model is trained, in the memory that the tables have left. A page shows all. Then the stack sleeps: the device is as good as empty, for
another program; it wakes, and the results are what they were.
"""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pylibcudf as plc
import rmm
import torch

import alluvion
import alluvion.rapids
from alluvion.rmm.allocators.torch import rmm_torch_allocator

LIMIT = "1152MiB"
MIB = 1 << 20


def join_and_group(rows):
    """A column of sums, by the keys of two tables that were joined."""

    def sequence(count, start, step):
        return plc.filling.sequence(count, plc.Scalar.from_py(start), plc.Scalar.from_py(step))

    def keys(count, start):
        numbers = sequence(count, start, 7919)
        modulus = plc.Scalar.from_py(rows // 4)
        operator, kind = plc.binaryop.BinaryOperator.PYMOD, plc.DataType(plc.TypeId.INT64)
        return plc.binaryop.binary_operation(numbers, modulus, operator, kind)

    left = plc.Table([keys(rows, 1), sequence(rows, 0, 1)])
    right = plc.Table([keys(rows // 4, 3), sequence(rows // 4, 0, 3)])
    by_left, by_right = plc.join.inner_join(
        plc.Table([left.columns()[0]]), plc.Table([right.columns()[0]]), plc.types.NullEquality.EQUAL
    )
    unchecked = plc.copying.OutOfBoundsPolicy.DONT_CHECK
    joined = plc.copying.gather(left, by_left, unchecked).columns() + plc.copying.gather(right, by_right, unchecked).columns()
    grouped = plc.groupby.GroupBy(plc.Table([joined[0]]))
    _, sums = grouped.aggregate([plc.groupby.GroupByRequest(joined[1], [plc.aggregation.sum()])])
    return sums[0].columns()[0]


def total(column):
    """The sum of a column."""
    return plc.reduce.reduce(column, plc.aggregation.sum(), plc.DataType(plc.TypeId.INT64)).to_py()


def clusters(numbers):
    """Where the numbers lie, two by two, by cuML's k-means: the centres of eight clusters."""
    from cuml.cluster import KMeans

    points = numbers[: len(numbers) // 2 * 2].view(-1, 2)
    # It reads on streams of its own.
    torch.cuda.synchronize()
    return KMeans(n_clusters=8, max_iter=20, random_state=7).fit(points).cluster_centers_


def eigenvalues(numbers, nodes=4096):
    """The largest eigenvalues of a ring, whose edges weigh what the numbers are, by pylibraft."""
    from pylibraft.sparse.linalg import eigsh

    edges = numbers[torch.arange(nodes, device="cuda") % len(numbers)] / numbers.max() + 1
    values = torch.stack((-edges.roll(1), edges.roll(1) + edges, -edges), dim=1).flatten()
    here = torch.arange(nodes, device="cuda", dtype=torch.int32)
    columns = torch.stack((here - 1, here, here + 1), dim=1).flatten() % nodes
    starts = torch.arange(0, 3 * nodes + 1, 3, device="cuda", dtype=torch.int32)
    # As SciPy's and CuPy's matrices name their parts.
    ring = SimpleNamespace(indptr=starts, indices=columns, data=values, shape=(nodes, nodes), nnz=3 * nodes)
    torch.cuda.synchronize()
    return eigsh(ring, k=4, maxiter=200, seed=7)[0]


def analyse(sums):
    """What the step is called, and what it finds in the sums; both are None where there is nothing to find it with."""
    steps = {"cuml": clusters, "pylibraft": eigenvalues}
    library = next(filter(find_spec, steps), None)
    if library is None:
        print("neither cuML nor pylibraft is installed: their step is left out")
        return None, None
    numbers = torch.as_tensor(sums.data(), device="cuda").view(torch.int64).float()
    return library, steps[library](numbers)


def train(steps=20):
    """A model, after some steps on random numbers."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6))).cuda()
    optimiser = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        loss = model(torch.randn(4096, 2048, device="cuda")).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model, optimiser


def weight(model):
    """What the model weighs: a number that any change of it changes."""
    return sum(parameter.double().sum().item() for parameter in model.parameters())


def found(result):
    """The sum of what was found in the sums."""
    return None if result is None else torch.as_tensor(result, device="cuda").double().sum().item()


def used():
    """The bytes of the device that somebody has."""
    free, everything = alluvion.memory_info()
    return everything - free


def main(rows):
    empty = used()
    stack = alluvion.resource(f'logging(file="one_stack.csv", tags=true) | stats | tracking | pool(maximum={LIMIT}) | mapped')
    alluvion.rapids.install(stack)
    alluvion.set_current_resource(stack)
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)

    with alluvion.tag("tables"):
        sums = join_and_group(rows)
    tables_peak = stack.stats().peak_bytes
    with alluvion.tag("analysis"):
        library, result = analyse(sums)
    with alluvion.tag("model"):
        model, optimiser = train()
    torch.cuda.synchronize()
    print(f"tables: at most {tables_peak // MIB} MiB; with the model: at most {stack.stats().peak_bytes // MIB} MiB of {LIMIT}")
    for tag, counts in stack.stats_by_tag().items():
        print(f"  {tag or 'no tag':>8}: {counts.allocations} allocations")

    stack.flush()
    alluvion.draw("one_stack.csv", "one_stack.html")
    before = total(sums), found(result), weight(model)
    torch.cuda.synchronize()
    awake = used() - empty
    with stack.sleep() as sleeper:
        print(f"asleep: {sleeper.bytes // MIB} MiB in {sleeper.blocks} blocks; the device has {(used() - empty) // MIB} of {awake // MIB} MiB")
    assert (total(sums), found(result), weight(model)) == before
    if library is not None:
        print(f"awake: what {library} found is what it was, {before[1]:.6g} in all")
    print(f"awake: the sums are {before[0]}, the model is what it was, and the page is one_stack.html")
    del sums, result, model, optimiser
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
