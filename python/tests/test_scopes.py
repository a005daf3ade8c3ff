"""Scopes: the resource for a while, and tags."""

import asyncio
import sys
import threading

import pytest

import alluvion


def in_thread(body):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(body()))
    thread.start()
    thread.join()
    return answers[0]


def test_using_restores_the_object_also_after_an_exception(sim):
    before = alluvion.current_resource()
    with alluvion.using("pool | cuda-async") as stack:
        assert alluvion.current_resource() is stack
        assert in_thread(alluvion.current_resource) is stack
        with alluvion.using(alluvion.resource("cuda")) as inner:
            assert alluvion.current_resource() is inner
        assert alluvion.current_resource() is stack
    assert alluvion.current_resource() is before
    with pytest.raises(KeyError), alluvion.using("cuda"):
        raise KeyError
    assert alluvion.current_resource() is before


def test_using_means_the_device_of_a_stack(sim):
    first = alluvion.current_resource(0)
    with alluvion.using(alluvion.resource("cuda", device=1)) as stack:
        assert alluvion.current_resource(1) is stack
        assert alluvion.current_resource(0) is first


def test_using_may_be_that_of_a_thread(sim):
    before = alluvion.current_resource()
    with alluvion.using("pool | cuda-async", thread=True) as stack:
        assert alluvion.current_resource() is stack
        assert in_thread(alluvion.current_resource) is before
        with alluvion.using("cuda", thread=True) as inner:
            assert alluvion.current_resource() is inner
        assert alluvion.current_resource() is stack
        assert alluvion.current_resource(1) is not stack
    assert alluvion.current_resource() is before
    with pytest.raises(TypeError, match="incorrect type"), alluvion.using(7, thread=True):
        pass


def test_tasks_have_resources_of_their_own(sim):
    async def work(stack):
        with alluvion.using(stack, thread=True):
            for _ in range(3):
                assert alluvion.current_resource() is stack
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(work(alluvion.resource("cuda")) for _ in range(3)))

    before = alluvion.current_resource()
    asyncio.run(main())
    assert alluvion.current_resource() is before


def test_using_what_is_no_resource_changes_nothing(sim):
    before = alluvion.current_resource()
    with pytest.raises(TypeError, match="incorrect type"), alluvion.using(7):
        pass
    with pytest.raises(ValueError), alluvion.using("pool | nothing"):
        pass
    assert alluvion.current_resource() is before


def test_tags_nest_and_end(sim):
    assert alluvion.current_tag() == ""
    with alluvion.tag("a"):
        with pytest.raises(KeyError), alluvion.tag("b"):
            assert alluvion.current_tag() == "a;b"
            raise KeyError
        assert alluvion.current_tag() == "a"
        assert in_thread(alluvion.current_tag) == ""
    assert alluvion.current_tag() == ""
    with pytest.raises(TypeError, match="a tag is a str"):
        alluvion.tag(7)


def test_one_tag_may_be_entered_twice(sim):
    mine = alluvion.tag("a")
    with mine, mine:
        assert alluvion.current_tag() == "a;a"
    assert alluvion.current_tag() == ""
    assert repr(mine) == "tag('a')"


def test_functions_are_tagged(sim):
    @alluvion.tag("plain")
    def plain(x, *, y):
        """Says it."""
        return alluvion.current_tag(), x + y

    @alluvion.tag("later")
    async def later():
        await asyncio.sleep(0)
        return alluvion.current_tag()

    assert plain(1, y=2) == ("plain", 3)
    assert plain.__doc__ == "Says it." and plain.__name__ == "plain"
    assert asyncio.run(later()) == "later"
    assert alluvion.current_tag() == ""


def test_allocations_of_a_task_have_its_tag(sim):
    stack = alluvion.resource("stats | cuda")

    async def work(name, size):
        with alluvion.tag(name):
            for _ in range(3):
                address = stack.allocate(size)
                await asyncio.sleep(0)
                stack.deallocate(address, size)

    async def main():
        await asyncio.gather(work("a", 10), work("b", 100))

    asyncio.run(main())
    tags = stack.stats_by_tag()
    assert tags["a"] == (30, 3, 0)
    assert tags["b"] == (300, 3, 0)
    stack.deallocate(stack.allocate(7), 7)
    assert stack.stats_by_tag()[""].bytes == 7


def test_tasks_that_interleave_leave_what_was_before(sim):
    """Of blocks that do not end in the order of their beginnings, each takes itself out."""
    before, own = alluvion.current_resource(), {}

    async def work(name, until):
        with alluvion.using(own[name]):
            await until.wait()

    async def main(order):
        ends = {name: asyncio.Event() for name in own}
        tasks = {}
        for name in own:
            tasks[name] = asyncio.create_task(work(name, ends[name]))
            await asyncio.sleep(0)
            assert alluvion.current_resource() is own[name]
        left = list(own)
        for name in order:
            ends[name].set()
            await tasks[name]
            left.remove(name)
            assert alluvion.current_resource() is (own[left[-1]] if left else before)

    for order in ("abc", "acb", "bac", "bca", "cab", "cba"):
        own = {name: alluvion.resource("cuda") for name in "abc"}
        asyncio.run(main(order))
        assert alluvion.current_resource() is before


def test_a_scope_that_was_not_entered_is_not_left(sim):
    with pytest.raises(RuntimeError, match="before it has begun"):
        alluvion.using(alluvion.resource("cuda")).__exit__(None, None, None)


def test_a_scope_of_a_thread_that_ends_in_another_is_told(sim):
    scope = alluvion.using("cuda", thread=True)
    in_thread(scope.__enter__)
    with pytest.warns(RuntimeWarning, match="another thread or task"):
        scope.__exit__(None, None, None)


def test_a_scope_within_that_of_a_thread_leaves_the_process_what_it_had(sim):
    before, stack = alluvion.current_resource(), alluvion.resource("cuda")
    with alluvion.using("cuda", thread=True):
        with alluvion.using(stack):
            assert in_thread(alluvion.current_resource) is stack
        assert in_thread(alluvion.current_resource) is before
    assert alluvion.current_resource() is before


def test_scopes_of_several_threads_leave_what_was_before(sim):
    before, stacks = alluvion.current_resource(), [alluvion.resource("cuda") for _ in range(4)]

    def enter_and_leave(stack):
        for _ in range(1000):
            with alluvion.using(stack):
                pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=enter_and_leave, args=(stack,)) for stack in stacks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert alluvion.current_resource() is before
