"""Stacks that are written on a line."""

from __future__ import annotations

from os import PathLike
from typing import Any, Callable, Iterable, Literal, NamedTuple, Self, cast

from alluvion import _alluvion
from alluvion._alluvion import DeviceBuffer, GraphMemory, Reservation, Sleeper
from alluvion._snapshot import Snapshot
from alluvion.errors import OutOfMemory


class Statistics(NamedTuple):
    """What a `stats` layer has counted: in total, or in one scope, where what is current may be negative."""

    current_bytes: int
    peak_bytes: int
    total_bytes: int
    current_count: int
    peak_count: int
    total_count: int
    failures: int


class TagStatistics(NamedTuple):
    """What was ever allocated under one tag."""

    bytes: int
    allocations: int
    failures: int


class Call(NamedTuple):
    """A call in the program: a line of Python, or of native code on a thread without Python."""

    function: str
    file: str | None
    line: int | None

    def __str__(self) -> str:
        if self.file is None:
            return self.function
        return f"{self.function} ({self.file})" if self.line is None else f"{self.function} ({self.file}:{self.line})"


class Block(NamedTuple):
    """A block that is out, as a `tracking` layer knows it."""

    address: int
    bytes: int
    stream: str | None
    tag: str
    thread: int
    #: When it was allocated: seconds since the layer was made.
    at: float
    #: The calls that led to it, the innermost first: with `tracking(stacks=all)`.
    calls: tuple[Call, ...]

    @property
    def call(self) -> Call | None:
        """The line that asked for it, if its stack was captured."""
        return self.calls[0] if self.calls else None


class Violation(NamedTuple):
    """What a `guard` layer has found: a write beside a block or after its free, or a free of what is no block."""

    address: int
    bytes: int
    tag: str
    #: The stream that the block was freed on.
    stream: str | None
    #: What was found, for people.
    text: str
    #: `before` and `behind`: beside the block, `after free`: in it, when it was free already; `not live`: the free of what is no block, which
    #: was not done; `wrong layout`: a free with another size, which was done with the right one.
    kind: str
    #: Where the first wrong byte is, from the beginning of the block: −1 is the byte before it. For the first three kinds.
    offset: int | None
    #: How many bytes are wrong, as far as the guard has looked.
    wrong_bytes: int | None

    def __str__(self) -> str:
        return self.text


class Limit(NamedTuple):
    """The outermost limit of a stack: that of a `limiting` or `budget` layer."""

    name: str
    bytes: int
    soft_bytes: int | None
    used_bytes: int
    peak_bytes: int
    refusals: int
    #: How often the soft limit was crossed.
    crossings: int


class Crossing(NamedTuple):
    """The event that the live bytes under a limit exceed its soft limit."""

    name: str
    #: The live bytes then, with the request that crossed the soft limit.
    used_bytes: int
    soft_bytes: int
    limit_bytes: int


class Counting:
    """A scope of statistics: what is allocated and freed within `with`, by all threads."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        #: The counts, once the block has ended.
        self.statistics: Statistics | None = None

    def __enter__(self) -> Counting:
        self._stack.push()
        return self

    def __exit__(self, *_: object) -> None:
        self.statistics = self._stack.pop()


class Stack(_alluvion.Stack):
    """A stack of layers over a source of memory, and what it says of itself.

    `Stack("stats | pool | cuda-async")` makes one; `Stack(resource)` looks at the stack of any resource object, without a copy of
    it: both hand out and free the same blocks. It is a resource like any other: `allocate`, `deallocate`, `alluvion.using`.

    - `device`: the number of the device, and the current one if it is left out. A recipe may name it, too: `cuda(gpu=1)`.
    - `over`: a resource object to put the layers over. Then the recipe has no source.
    - `on_out_of_memory`: called with an `alluvion.errors.OutOfMemory` when a request finds no memory. If it answers true, the
      request is tried again, and if that fails, asked about again. It may free and allocate; what it allocates asks no handler.
      If it raises, the request fails, and the exception is the cause of that of the request. It is not asked about a request for
      more than can ever be had, as beyond a limit. An `async def` is refused: no request can wait for it.

    A second free of a block, or one with another size, is `alluvion.errors.Misuse`, a `ValueError`: the suballocators are made with
    `checked=true`, which `pool(checked=false)` turns off.

    >>> import alluvion
    >>> with alluvion.simulated(memory="1 GiB"):
    ...     stack = alluvion.Stack("stats | limiting(64MiB) | pool | cuda-async")
    ...     address = stack.allocate(1 << 20)
    ...     print(stack.stats().current_bytes, stack.limit().bytes)
    ...     stack.deallocate(address, 1 << 20)
    ...     print(stack)
    ...     del stack
    1048576 67108864
    Stats(0 B) | Limiting(64 MiB) | Pool(2 MiB) | CudaAsync(gpu 0)
    """

    def __new__(
        cls,
        recipe: str | _alluvion.DeviceMemoryResource,
        device: int | None = None,
        *,
        over: _alluvion.DeviceMemoryResource | None = None,
        on_out_of_memory: Callable[[OutOfMemory], object] | None = None,
    ) -> Self:
        if on_out_of_memory is not None:
            _require_function(on_out_of_memory, "on_out_of_memory")
        return super().__new__(cls, recipe, device, over, on_out_of_memory)

    def stats(self) -> Statistics:
        """What the outermost `stats` layer has counted since it was made, or since the last `push`."""
        return Statistics(*self._needed(self._counts(False), "stats"))

    def push(self) -> Statistics:
        """Begins a scope of statistics. Returns what was counted around it so far."""
        return Statistics(*self._needed(self._push_counts(), "stats"))

    def pop(self) -> Statistics:
        """Ends the scope that was pushed last, and returns what was counted in it. It is added to the scope around it."""
        self._needed(self._counts(True), "stats")
        popped = self._pop_counts()
        if popped is None:
            raise IndexError("cannot pop the last counter pair: no scope was pushed")
        return Statistics(*popped)

    def counting(self) -> Counting:
        """A scope of statistics for `with`.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("stats | pool | cuda-async")
        ...     with stack.counting() as scope:
        ...         stack.deallocate(stack.allocate(1000), 1000)
        ...     print(scope.statistics.total_bytes, scope.statistics.current_bytes)
        ...     del scope, stack
        1000 0
        """
        return Counting(self)

    def stats_by_tag(self) -> dict[str, TagStatistics]:
        """What was allocated under each tag since the `stats` layer was made. Allocations outside of all tags are under `""`."""
        rows = self._needed(self._counts_by_tag(), "stats")
        return {tag: TagStatistics(*counts) for tag, *counts in rows}

    def blocks(self) -> list[Block]:
        """The blocks that are out, the oldest first, as the `tracking` layer knows them.

        With `tracking(stacks=all)` each has the lines of Python that led to it. A frame costs about 0.15 µs: see
        `alluvion.set_stack_depth`.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("tracking(stacks=all) | pool | cuda-async")
        ...     with alluvion.tag("table"):
        ...         address = stack.allocate(1000)
        ...     block, = stack.blocks()
        ...     print(block.bytes, block.tag, block.call.function)
        ...     stack.deallocate(address, 1000)
        ...     del stack
        1000 table <module>
        """
        rows = self._needed(self._holdings(), "tracking")
        return [Block._make((*facts, tuple(Call(*call) for call in calls))) for *facts, calls in rows]

    def blocks_report(self) -> str:
        """The blocks that are out as text: the most bytes by tag and by line, and the largest blocks."""
        return str(self._needed(self._holdings_report(), "tracking"))

    def violations(self) -> list[Violation]:
        """What the `guard` layer has found so far. Waits for the checks of all that was freed.

        Each is a `RuntimeWarning` at the moment that it is found, too: on the thread that has found it, which is one that allocates, frees or
        asks here. Where warnings are errors it goes to `sys.unraisablehook`, and stops nothing. For `not live` it is a line on standard error,
        because the free is an `alluvion.errors.Misuse`.

        >>> import alluvion, warnings
        >>> with alluvion.simulated(check=False):
        ...     stack = alluvion.resource("guard | cuda")
        ...     buffer = alluvion.empty(1000, resource=stack)
        ...     alluvion.rmm.pylibrmm.device_buffer.copy_host_to_ptr(b"12345", buffer.ptr + 998)
        ...     with warnings.catch_warnings(record=True) as warned:
        ...         warnings.simplefilter("always")
        ...         del buffer
        ...         found, = stack.violations()
        ...     print(found.kind, found.offset, found.wrong_bytes, len(warned))
        ...     del stack
        behind 1000 3 1
        """
        return [Violation._make(row) for row in self._needed(self._violations(), "guard")]

    def limit(self) -> Limit | None:
        """The outermost limit and what is used of it, if the stack has one."""
        found = self._allowance()
        return None if found is None else Limit(*found)

    def reserve(self, size: int | str) -> Reservation:
        """Sets bytes of the outermost limit aside, until the end of a `with` block: for memory that somebody else takes, such as a workspace
        of a library, so that the limit counts it. It is no memory. `MemoryError` if the limit has not as much left.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("limiting(8MiB) | cuda")
        ...     with stack.reserve("6 MiB"):
        ...         print(stack.limit().used_bytes)
        ...     print(stack.limit().used_bytes)
        ...     del stack
        6291456
        0
        """
        return cast(Reservation, self._needed(self._reserve(_alluvion.parse_bytes(size)), "limiting"))

    def on_soft_limit(self, observer: Callable[[Crossing], object], soft: int | str | None = None) -> None:
        """Has `observer` called each time that the live bytes exceed the soft limit of the outermost limit: once, on the thread of the request,
        before the bytes are used. It may free and allocate; what it allocates calls no observer. What it raises goes to
        `sys.unraisablehook`, and the request goes on.

        - `soft`: sets the soft limit, which refuses no request. `budget(hard, soft=...)` has one already.

        It is called as long as this object is there, which every buffer of the stack keeps.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("limiting(8MiB) | cuda")
        ...     stack.on_soft_limit(lambda crossing: print(crossing.used_bytes >> 20, "MiB"), soft="4 MiB")
        ...     del (buffers := stack.allocate_many(["2 MiB"] * 4))[:]
        ...     del stack
        6 MiB
        """
        _require_function(observer, "an observer")
        bytes = None if soft is None else _alluvion.parse_bytes(soft)
        told = self._on_soft(lambda *facts: observer(Crossing(*facts)), bytes)
        self._needed(told or None, "limiting")

    def snapshot(self) -> Snapshot:
        """Every segment and block of the outermost pool at this moment. Blocks have tags if there is a `tracking` layer."""
        return Snapshot(self._needed(self._snapshot_json(), "pool"))

    def allocate_many(self, sizes: Iterable[int | str], *, stream: Any = None) -> list[DeviceBuffer]:
        """A buffer for each size, or none at all: if a request fails, the buffers before it go back. `stream` is that of all of them, and
        the default stream if it is left out.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("stats | pool(maximum=4MiB) | cuda")
        ...     table, index = stack.allocate_many(["2 MiB", 1000])
        ...     print(table.size, index.size)
        ...     try:
        ...         stack.allocate_many([1 << 20, 2 << 20])
        ...     except MemoryError:
        ...         print(stack.stats().current_count)
        ...     del table, index, stack
        2097152 1000
        2
        """
        options = {} if stream is None else {"stream": stream}
        return _alluvion.allocate_many(self, [_alluvion.parse_bytes(size) for size in sizes], **options)

    def defragment(self) -> None:
        """Empties the caches of the outermost suballocator, asks the driver which work is completed, and merges its memory. Does not wait:
        call it at a safe point of a program, such as the end of an iteration.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("pool(initial=4MiB) | cuda")
        ...     del (buffers := stack.allocate_many(["1 MiB"] * 4))[:]
        ...     print(stack.pool_status()["largest_free_bytes"])
        ...     alluvion.rmm.pylibrmm.stream.DEFAULT_STREAM.synchronize()
        ...     stack.defragment()
        ...     print(stack.pool_status()["largest_free_bytes"])
        ...     del stack
        0
        4194304
        """
        self._needed(self._defragment() or None, "pool")

    def trim(self, keep: int | str = 0) -> int:
        """Gives memory that nobody uses back, down to `keep` bytes. Returns how many bytes went."""
        return self._trim_to(_alluvion.parse_bytes(keep))

    def capture(self, stream: Any) -> GraphMemory:
        """Opens memory for the graph that `stream` captures: call it right after the capture has begun.

        A graph has the addresses of its memory for as long as it can be launched. Until the end of the `with` block, what is allocated from
        the stack on a stream of the capture comes from memory of the graph, and what is freed there serves later work of the same graph, and
        nobody else. The answer keeps that memory beside the graph; when the graph is gone, `release()` gives it back. One that is dropped
        without leaves the memory with the graph for good. Of two suballocators the outer one is a `pool`, and no `binning` is over it.

        Drop a buffer that two streams of the capture have used after `end_capture`, and not within: the free of one would be a wait that the
        driver refuses there, so that its memory stays with the program, and `release()` is `InUse`.

        >>> import alluvion
        >>> with alluvion.simulated() as sim:
        ...     stream = alluvion.Stream(flags=1)
        ...     stack = alluvion.resource("stats | pool | cuda")
        ...     output = alluvion.empty(1000, resource=stack, stream=stream)
        ...     sim.begin_capture(stream)
        ...     with stack.capture(stream) as memory:
        ...         for _ in range(3):
        ...             scratch = alluvion.empty(1000, resource=stack, stream=stream)
        ...             output.copy_from_device(scratch, stream=stream)
        ...             del scratch
        ...         graph = sim.end_capture(stream)
        ...     print(memory.reserved_bytes, graph.node_count)
        ...     del graph
        ...     print(memory.release())
        ...     del output, memory, stack, stream
        2097152 3
        2097152
        """
        return self._capture(stream)

    def sleep(
        self, tag: str | None = None, *, keep: Literal["host", "disk", "nothing"] = "host", folder: str | PathLike[str] | None = None
    ) -> Sleeper:
        """Gives the memory of the stack back to the device, and keeps the addresses: of all blocks, or of those that carry a tag.

        - `tag`: as in `alluvion.tag`; scopes within each other have semicolons between them, `"load;join"`. The `tracking` layer knows the
          tags, or the pool itself. The rest of the stack goes on. Without a tag all of it sleeps, and refuses requests by an
          `alluvion.errors.Asleep` until it is awake.
        - `keep`: `"host"` copies the contents to pinned memory, from which `wake` restores them; `"disk"` writes them to a
          file of `folder`, which goes when they are back; after `"nothing"` they are arbitrary. A folder that cannot be written to, or a
          full disk, is an `alluvion.errors.Unwritable`, and nothing sleeps. A file that was damaged or cut short is an error of `wake`: everything
          sleeps on, and it can be called again.

        It waits for all work on the device. **Whoever calls it promises** that until the blocks are awake no work uses them, and that no
        thread frees one while it runs: a kernel that does is the end of the process's context. A captured graph may be launched
        again once they are awake. The stack is a pool over pages, `pool | mapped`, under any layers that pass blocks on.

        The answer wakes them: by `wake()`, or at the end of a `with` block. One that is dropped before leaves its blocks without memory until
        they are freed.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("stats | tracking | pool | mapped")
        ...     with alluvion.using(stack), alluvion.tag("weights"):
        ...         weights = alluvion.rmm.DeviceBuffer.to_device(b"abc")
        ...     sleeper = stack.sleep("weights")
        ...     print(sleeper)
        ...     sleeper.wake()
        ...     print(weights.tobytes())
        ...     del weights, sleeper, stack
        Sleeper(256 bytes in 1 block, asleep)
        b'abc'
        """
        if keep not in ("host", "disk", "nothing"):
            raise ValueError(f'keep is "host", "disk" or "nothing", and not {keep!r}')
        if (keep == "disk") != (folder is not None):
            raise ValueError('keep is "disk", which needs a folder' if folder is None else f'keep is {keep!r}, and a folder is for "disk"')
        if tag is not None and not isinstance(tag, str):
            raise TypeError(f"a tag is a str, and not {type(tag).__name__}")
        return self._sleep(tag, keep == "host", folder)

    def on_segment(
        self,
        added: Callable[[int, int, int], object] | None = None,
        dropped: Callable[[int, int, int], object] | None = None,
    ) -> None:
        """Has two functions told of the segments of the pool: `added(address, bytes, device)` before the first block of one goes out, and
        for every segment that is there already; `dropped(address, bytes, device)` before one goes. There a program registers memory with a
        network card or NCCL, and takes that back. Functions that were set before hear of nothing any more.

        They are called on the thread whose request, trim, sleep or end it is, and may use the stack, but a request of theirs that takes
        another segment is refused. If `added` raises, the segment goes back, and the request fails with that exception as its cause; of a
        segment that was there, this call does, and it stays. If `dropped` raises, the segment stays, and is leaked at the end of the stack; no
        request fails for it, and the exception goes to `sys.unraisablehook`.

        The functions live as long as the pool: one that keeps the stack keeps both for ever. Segments of a pool over pages move, unless it is
        registered.

        >>> import alluvion
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("pool(registered=8MiB) | mapped")
        ...     stack.on_segment(added=lambda address, size, device: print("register", size))
        ...     with alluvion.using(stack):
        ...         buffer = alluvion.rmm.DeviceBuffer(size=1000)
        ...     print([size for _, size in stack.segments()])
        ...     del buffer, stack
        register 8388608
        [8388608]
        """
        for function in (added, dropped):
            if function is not None and not callable(function):
                raise TypeError(f"what hears of segments is called, and {type(function).__name__} cannot be")
        self._needed(self._on_segment(added, dropped), "pool")

    def segments(self) -> list[tuple[int, int]]:
        """The memory that the pool has of its upstream, piece by piece: the address and the bytes of each."""
        return self._needed(self._segments(), "pool")

    def export_segment(self, address: int) -> int:
        """A descriptor of a file for the segment that begins at `address`, by which a library of another process maps the same memory with
        `cuMemImportFromShareableHandle`. The caller closes it. It keeps the memory, also when the pool gives the segment back.

        Whoever calls it promises that the segment is there until it returns: a block on it is live, or no thread trims the stack meanwhile.
        Only pages with such a handle have one, `pool(registered=64MiB) | mapped(handles=fd)`; else it is an `alluvion.errors.Unsupported`.

        >>> import alluvion, os
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("pool(registered=8MiB, initial=8MiB) | mapped(handles=fd)")
        ...     for address, size in stack.segments():
        ...         os.close(stack.export_segment(address))
        ...     del stack
        """
        return self._export_segment(address)

    def dma_buf(self, address: int, nbytes: int) -> int:
        """A descriptor of a dma-buf, through which the kernel's other drivers reach memory of the device: `ibv_reg_dmabuf_mr` registers it
        with a network card. The caller closes it. It keeps the memory, also when that is freed, until the last registration is gone.

        The range is whole pages of the host, and within one segment, as `segments` lists them. Whoever calls it promises that the memory is
        there until it returns. A device without dma-bufs is an `alluvion.errors.Unsupported`.

        >>> import alluvion, os
        >>> with alluvion.simulated():
        ...     stack = alluvion.resource("pool(registered=8MiB, initial=8MiB) | mapped")
        ...     for address, size in stack.segments():
        ...         os.close(stack.dma_buf(address, size))
        ...     del stack
        """
        return self._dma_buf(address, nbytes)

    def freeze(self) -> None:
        """Lets the pool take no more memory and give none back, until it ends: a request that does not fit is an `OutOfMemory`, which says
        so, and a trim does nothing."""
        self._needed(self._freeze(), "pool")

    def describe(self) -> str:
        """The stack, a layer a line, outermost first."""
        return "\n".join(self.layers)

    def __str__(self) -> str:
        return " | ".join(self.layers)

    def __repr__(self) -> str:
        return str(self)

    def _needed(self, answer: Any, layer: str) -> Any:
        if answer is None:
            raise ValueError(f"there is no `{layer}` layer in {self}: put `{layer}` into the recipe")
        return answer


def _require_function(function: object, what: str) -> None:
    from inspect import iscoroutinefunction

    if not callable(function):
        raise TypeError(f"{what} must be callable, and {type(function).__name__} is not")
    if iscoroutinefunction(function):
        raise TypeError(f"{what} must not be an `async def`: a request cannot wait for it")


def resource(
    recipe: str | _alluvion.DeviceMemoryResource,
    device: int | None = None,
    *,
    over: _alluvion.DeviceMemoryResource | None = None,
    on_out_of_memory: Callable[[OutOfMemory], object] | None = None,
) -> Stack:
    """A stack of resources, written on a line, outermost first: see `Stack` and `recipe_help`.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     alluvion.resource("stats | limiting(8GiB) | pool | cuda-async")
    Stats(0 B) | Limiting(8 GiB) | Pool(0 B) | CudaAsync(gpu 0)
    >>> alluvion.resource("pool | cuda-asinc")
    Traceback (most recent call last):
    alluvion.errors.Malformed: malformed: line 1, column 8: nothing is called `cuda-asinc`; did you mean `cuda-async`?
      pool | cuda-asinc
             ^^^^^^^^^^
    """
    return Stack(recipe, device, over=over, on_out_of_memory=on_out_of_memory)


__all__ = ["Block", "Call", "Counting", "Crossing", "GraphMemory", "Limit", "Reservation", "Stack", "Statistics", "TagStatistics", "Violation", "resource"]
