"""Stacks that are written on a line, and what they say of themselves."""

import gc
import json
import threading
import weakref

import pytest

import alluvion
from alluvion import _alluvion, errors

MIB = 1 << 20


def test_a_recipe_makes_a_resource_of_the_usual_kind(sim):
    stack = alluvion.resource("stats | limiting(8GiB) | pool | cuda-async")
    assert isinstance(stack, alluvion.Stack)
    assert isinstance(stack, _alluvion.DeviceMemoryResource)
    assert not hasattr(stack, "upstream_mr")
    address = stack.allocate(1000)
    assert address % 256 == 0
    stack.deallocate(address, 1000)
    assert str(stack) == repr(stack) == "Stats(0 B) | Limiting(8 GiB) | Pool(2 MiB) | CudaAsync(gpu 0)"
    assert stack.describe() == str(stack).replace(" | ", "\n")
    assert stack.layers[0] == "Stats(0 B)" and len(stack.layers) == 4


def test_a_recipe_that_is_wrong_says_where(sim):
    with pytest.raises(errors.Malformed) as raised:
        alluvion.resource("pool(initial=1GiB) | cuda-asinc")
    assert isinstance(raised.value, ValueError)
    assert (raised.value.line, raised.value.column) == (1, 22)
    assert "did you mean `cuda-async`?" in str(raised.value)
    with pytest.raises(ValueError, match="column"):
        alluvion.resource("pool(initial=zz) | cuda")
    with pytest.raises(TypeError, match="a recipe is a str"):
        alluvion.resource(7)
    with pytest.raises(TypeError, match="a recipe is a str"):
        alluvion.resource(None)


def test_a_device_is_named_by_argument_or_recipe(sim):
    assert alluvion.resource("cuda").device == 0
    assert alluvion.resource("cuda", device=1).device == 1
    assert alluvion.resource("pool | cuda(gpu=1)").device == 1
    with pytest.raises(errors.NoDevice):
        alluvion.resource("cuda", device=9)
    with pytest.raises(ValueError, match="another device"):
        alluvion.resource("cuda(gpu=1)", device=0)
    with pytest.raises(OverflowError):
        alluvion.resource("cuda", device=-1)


def test_an_empty_recipe_is_the_best_source_alone(sim):
    assert str(alluvion.resource("")) == "CudaAsync(gpu 0)"


def test_a_stack_may_look_at_any_resource(sim):
    given = _alluvion.CudaMemoryResource()
    stack = alluvion.Stack(given)
    assert str(stack) == "Cuda(gpu 0)"
    address = stack.allocate(100)
    given.deallocate(address, 100)
    assert sim.leaks() == []
    with pytest.raises(ValueError, match="leave `over` and `device` out"):
        alluvion.Stack(given, 0)


def test_layers_go_over_another_resource(sim):
    base = alluvion.resource("stats | cuda")
    stack = alluvion.resource("pool", over=base)
    address = stack.allocate(100)
    assert base.stats().current_count == 1
    stack.deallocate(address, 100)
    assert str(stack).startswith("Pool(2 MiB) | Stats(2 MiB) | Cuda(gpu 0)")
    with pytest.raises(ValueError, match="leave the source out"):
        alluvion.resource("pool | cuda", over=base)
    with pytest.raises(TypeError):
        alluvion.resource("pool", over="cuda")


def test_statistics_have_scopes(sim):
    stack = alluvion.resource("stats | cuda")
    kept = stack.allocate(10)
    assert stack.stats() == alluvion.Statistics(10, 10, 10, 1, 1, 1, 0)
    around = stack.push()
    assert around.current_bytes == 10
    stack.deallocate(kept, 10)
    assert stack.stats().current_bytes == -10
    assert stack.pop().current_bytes == -10
    assert stack.stats() == alluvion.Statistics(0, 10, 10, 0, 1, 1, 0)
    with pytest.raises(IndexError, match="cannot pop the last counter pair"):
        stack.pop()
    with stack.counting() as scope:
        stack.deallocate(stack.allocate(1000), 1000)
    assert scope.statistics.peak_bytes == 1000
    with pytest.raises(MemoryError):
        stack.allocate(1 << 40)
    assert stack.stats().failures == 1


def test_the_layer_that_is_missing_is_named(sim):
    stack = alluvion.resource("cuda")
    for ask, layer in [
        (stack.stats, "stats"),
        (stack.push, "stats"),
        (stack.pop, "stats"),
        (stack.stats_by_tag, "stats"),
        (stack.blocks, "tracking"),
        (stack.blocks_report, "tracking"),
        (stack.snapshot, "pool"),
    ]:
        with pytest.raises(ValueError, match=f"no `{layer}` layer"):
            ask()
    assert stack.limit() is None
    assert stack.pool_status() is None
    assert stack.log_file is None
    stack.flush()


def test_tags_are_counted(sim):
    stack = alluvion.resource("stats | cuda")
    with alluvion.tag("query"):
        first = stack.allocate(100)
        with alluvion.tag("join"):
            second = stack.allocate(50)
    third = stack.allocate(7)
    tags = stack.stats_by_tag()
    assert tags["query"] == (100, 1, 0)
    assert tags["query;join"] == (50, 1, 0)
    assert tags[""] == (7, 1, 0)
    for address, size in [(first, 100), (second, 50), (third, 7)]:
        stack.deallocate(address, size)


def test_blocks_have_the_line_of_python(sim):
    stack = alluvion.resource("tracking(stacks=all) | pool | cuda-async")

    def load():
        return stack.allocate(3000)

    with alluvion.tag("table"):
        address = load()
    line = load.__code__.co_firstlineno + 1
    (block,) = stack.blocks()
    assert (block.address, block.bytes, block.tag) == (address, 3000, "table")
    assert block.call.line == line and block.call.file == __file__
    assert block.call.function.endswith("load")
    assert block.calls[1].function == "test_blocks_have_the_line_of_python"
    assert str(block.call) == f"{block.call.function} ({__file__}:{line})"
    assert block.stream is not None and block.at >= 0
    assert f":{line})" in stack.blocks_report()
    stack.deallocate(address, 3000)
    assert stack.blocks() == []


def test_the_depth_of_stacks_is_set(sim):
    stack = alluvion.resource("tracking(stacks=all) | cuda")
    before = alluvion.set_stack_depth(1)
    try:
        address = stack.allocate(10)
        assert len(stack.blocks()[0].calls) == 1
        stack.deallocate(address, 10)
        for wrong in (0, 65):
            with pytest.raises(ValueError, match="1 to 64"):
                alluvion.set_stack_depth(wrong)
    finally:
        alluvion.set_stack_depth(before)


def test_many_threads_are_tracked_with_their_lines(sim):
    stack = alluvion.resource("tracking(stacks=all) | pool | cuda-async")
    held, failed = [], []

    def work(number):
        try:
            for size in range(1, 40):
                held.append((stack.allocate(size * 10), size * 10))
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    blocks = stack.blocks()
    assert len(blocks) == 4 * 39
    assert {block.call.function.split(".")[-1] for block in blocks} == {"work"}
    for address, size in held:
        stack.deallocate(address, size)
    assert stack.blocks() == []


def test_a_limit_tells_what_is_used(sim):
    stack = alluvion.resource("budget(name=queries, soft=1KiB, hard=4KiB) | cuda")
    address = stack.allocate(2048)
    limit = stack.limit()
    assert (limit.name, limit.bytes, limit.soft_bytes, limit.used_bytes) == ("queries", 4096, 1024, 2048)
    assert limit.crossings == 1
    with pytest.raises(errors.OutOfMemory) as raised:
        stack.allocate(4096)
    assert isinstance(raised.value, MemoryError)
    assert raised.value.requested == 4096 and raised.value.limit == 4096
    assert stack.limit().refusals == 1
    stack.deallocate(address, 2048)


def test_a_handler_frees_memory(sim):
    stack, held, asked = None, [], []

    def relief(error):
        asked.append(error)
        if not held:
            return False
        stack.deallocate(*held.pop())
        return True

    stack = alluvion.resource("limiting(1MiB) | cuda", on_out_of_memory=relief)
    held.append((stack.allocate(MIB), MIB))
    second = stack.allocate(MIB)
    assert len(asked) == 1 and held == []
    assert isinstance(asked[0], errors.OutOfMemory) and asked[0].requested == MIB
    with pytest.raises(MemoryError):
        stack.allocate(MIB)
    assert len(asked) == 2
    stack.deallocate(second, MIB)
    with pytest.raises(TypeError, match="must be callable"):
        alluvion.resource("cuda", on_out_of_memory=7)


def test_a_handler_that_raises_is_the_cause(sim):
    raised = [KeyError("on purpose"), MemoryError("no more")]

    def relief(error):
        raise raised[0]

    stack = alluvion.resource("limiting(1KiB) | cuda", on_out_of_memory=relief)
    first = stack.allocate(1024)
    with pytest.raises(RuntimeError, match="on purpose") as failed:
        stack.allocate(512)
    assert failed.value.__cause__ is raised.pop(0)
    with pytest.raises(MemoryError, match="no more") as failed:
        stack.allocate(512)
    assert failed.value.__cause__ is raised[0]
    stack.deallocate(first, 1024)


def test_a_handler_may_allocate(sim):
    stack, asked = None, []

    def relief(error):
        asked.append(error)
        stack.deallocate(stack.allocate(256), 256)
        with pytest.raises(MemoryError):
            stack.allocate(1024)
        return False

    stack = alluvion.resource("limiting(1KiB) | cuda", on_out_of_memory=relief)
    first = stack.allocate(512)
    with pytest.raises(MemoryError):
        stack.allocate(1000)
    assert len(asked) == 1
    stack.deallocate(first, 512)


def test_a_handler_in_a_cycle_is_collected(sim):
    class Holder:
        pass

    holder = Holder()
    holder.stack = alluvion.resource("cuda", on_out_of_memory=lambda error: holder is None)
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


def test_a_snapshot_is_saved(sim, tmp_path):
    stack = alluvion.resource("tracking | pool(initial=4MiB) | cuda-async")
    with alluvion.tag("table"):
        address = stack.allocate(MIB)
    snapshot = stack.snapshot()
    stack.deallocate(address, MIB)
    assert repr(snapshot) == "Snapshot(1 block live, 1048576 of 4194304 bytes, gpu 0)"
    assert snapshot.facts["blocks"][0]["tag"] == "table"
    snapshot.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == snapshot.facts
    snapshot.save(str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text()
    assert page.lower().startswith("<!doctype html>") and "table" in page
    assert snapshot._repr_html_().startswith('<iframe srcdoc="&lt;!')
    with pytest.raises(ValueError, match="saved as .html or .json"):
        snapshot.save(tmp_path / "a.txt")
    with pytest.raises(OSError):
        snapshot.save(tmp_path / "none" / "a.json")


def test_trim_gives_memory_back(sim):
    stack = alluvion.resource("pool | cuda")
    stack.deallocate(stack.allocate(MIB), MIB)
    assert stack.pool_status()["reserved_bytes"] == 2 * MIB
    assert stack.trim("4 MiB") == 0
    assert stack.trim() == 2 * MIB
    assert stack.pool_status()["reserved_bytes"] == 0
    assert stack.memory_info() == alluvion.memory_info()


def test_a_log_is_written_and_drawn(sim, tmp_path):
    log = tmp_path / "log.csv"
    stack = alluvion.resource(f'logging(file="{log}") | cuda')
    stack.deallocate(stack.allocate(1000), 1000)
    stack.flush()
    assert stack.log_file == str(log)
    rows = log.read_text().splitlines()
    assert rows[0].startswith("Thread,Time,Action,Pointer,Size,Stream") and len(rows) == 3
    assert "2 events" in alluvion.draw(log, tmp_path / "page.html")
    with pytest.raises(RuntimeError):
        alluvion.draw(tmp_path / "none.csv", tmp_path / "page.html")


def test_metrics_are_a_page_of_prometheus(sim):
    stack = alluvion.resource("stats | pool | cuda-async")
    page = stack.metrics("mine")
    assert 'alluvion_reserved_bytes{resource="mine",device="0",depth="1",layer="Pool"}' in page
    assert page == alluvion.metrics({"mine": stack})


def test_recipes_are_explained():
    assert "cuda-async" in alluvion.recipe_help()
    assert alluvion.plain_recipe("pool( 16 MiB ) | cuda_async") == "pool(initial=16MiB) | cuda-async"
    with pytest.raises(errors.Malformed):
        alluvion.plain_recipe("|")


def test_a_stack_is_not_pickled(sim):
    import copy
    import pickle

    stack = alluvion.resource("cuda")
    with pytest.raises(TypeError):
        pickle.dumps(stack)
    with pytest.raises(TypeError):
        copy.copy(stack)


def test_a_coroutine_is_no_handler(sim):
    async def spill(error):
        return True

    with pytest.raises(TypeError, match="async def"):
        alluvion.resource("cuda", on_out_of_memory=spill)


def test_completion_shows_no_name_twice():
    internal = {"counts", "push_counts", "holdings", "allowance", "snapshot_json", "trim_to", "holdings_report"}
    assert not internal & set(dir(alluvion.Stack))
    assert not {"hazard_rows", "leak_rows", "call_counts", "inject", "enter", "leave"} & set(dir(alluvion.Simulated))
