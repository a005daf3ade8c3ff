"""Runs in gdb, after `gdb/alluvion.py`: compares what that says with the snapshots that the program has written."""
import contextlib
import json
import os
import pathlib
import struct
import traceback

import gdb

mode, symbols = os.environ["ALLUVION_CHECK"].split()
folder = pathlib.Path(os.environ["ALLUVION_DEBUGGER_FOLDER"])


def said(command):
    return gdb.execute(command, to_string=True)


def check_all():
    found = pools()  # noqa: F821, of the script
    names = ["pool", "pages", "arena", "tiles", "inner", "outer"]
    by_name = {}
    for name in names:
        written = json.loads((folder / f"{name}.json").read_text())
        # Where the first block of one is the first segment of another, their lengths differ.
        (pool,) = [one for one in found if segments_of(one) == segments_in(written)]
        by_name[name] = pool
        check_pool(name, pool, written)
    assert len(found) == len(names) + 2, [pool.title() for pool in found]
    texts = {pool.number: pool.text for pool in found}
    assert texts[by_name["pool"].number] == "Pool > Cuda(gpu 0)", texts
    assert texts[by_name["arena"].number].startswith("Arena > "), texts
    check_commands(found, by_name)
    check_graph(found)
    if mode == "live":
        check_corrupt(found, by_name)


def segments_of(pool):
    return [(part.address, part.end - part.address) for part in pool.segments]


def segments_in(written):
    return [(int(part["address"], 16), part["bytes"]) for part in written["segments"]]


def check_pool(name, pool, written):
    blocks = [block for segment in pool.segments for block in segment.blocks]
    shown = [(block.address, block.bytes, block.state, block.stream, block.epoch) for block in blocks]
    expected = [
        (int(block["address"], 16), block["bytes"], block["state"], block.get("stream"), block.get("epoch"))
        for block in written["blocks"]
    ]
    assert shown == expected, (name, [pair for pair in zip(shown, expected) if pair[0] != pair[1]][:3])
    status = written["status"]
    assert pool.sum("live") == (status["live_blocks"], status["live_bytes"]), name
    assert pool.sum("cached")[1] == status["cached_bytes"] and pool.reserved == status["reserved_bytes"], name
    print(f"{name}: {len(shown)} blocks in {len(pool.segments)} segments, {sorted({block[2] for block in shown})}")


def check_commands(found, by_name):
    listed = said("alluvion pools")
    assert listed.count("\n#") == len(found) - 1 and "; at most 64 MiB" in listed, listed
    stacks = said("alluvion stacks")
    inner, outer = by_name["inner"], by_name["outer"]
    assert f"its segments are blocks of #{outer.number}" in stacks and "> Stats\n" in stacks, stacks
    states = set()
    for pool in by_name.values():
        for block in (block for chain in pool.chains for block in chain):
            if (pool.text, block.state) in states:
                continue
            states.add((pool.text, block.state))
            for address in (block.address, block.end - 1):
                text = said(f"alluvion block {address:#x}")
                assert f"a block of {size(block.bytes)} at {block.address:#x}" in text, text  # noqa: F821
                assert f"in:      #{pool.number} " in text and block.words() in text, text
    assert {"live", "cached", "pending", "free", "absent"} <= {state for _, state in states}, states
    # A live block of the inner one lies in a live block of the outer one.
    block = next(block for segment in inner.segments for block in segment.blocks if block.state == "live")
    text = said(f"alluvion block {block.address:#x}")
    assert text.count("state:   live") == 2 and text.index(f"#{inner.number} ") < text.index(f"#{outer.number} "), text
    live = said(f"alluvion blocks {inner.number} live")
    assert live.count("\n") == inner.sum("live")[0] and f"{block.address:#x}" in live, live
    assert "is in no suballocator" in said("alluvion block 4096")
    for wrong in ("alluvion block", "alluvion blocks 99", "alluvion block no_such_variable"):
        try:
            said(wrong)
        except gdb.error:
            continue
        raise AssertionError(f"{wrong} is no error")


def check_graph(found):
    address = (folder / "graph").read_text()
    text = said(f"alluvion block {address}")
    assert "which graphs have" in text and text.count("state:   live") == 2, text


class Instead:
    """Other bytes in the memory of the program, for a while."""

    def __init__(self, address, count, *numbers):
        self.address, self.bytes = address, struct.pack(f"<{len(numbers)}{ {4: 'I', 8: 'Q'}[count] }", *numbers)

    def __enter__(self):
        inferior = gdb.selected_inferior()
        self.before = bytes(inferior.read_memory(self.address, len(self.bytes)))
        inferior.write_memory(self.address, self.bytes)

    def __exit__(self, *_):
        gdb.selected_inferior().write_memory(self.address, self.before)


def check_corrupt(found, by_name):
    """What makes no sense is left out, and the rest is shown, whatever a program has written over the books."""
    pool, plan = by_name["pool"], by_name["pool"].plan
    chunks, count = struct.unpack("<QQ", read(pool.nodes, 16))  # noqa: F821
    (chunk,) = struct.unpack("<Q", read(chunks, 8))  # noqa: F821
    for what, instead in {
        "no record": Instead(pool.address, 8, 0),
        "no plan": Instead(pool.address + 8, 8, 0x10),
        "something else for a plan": Instead(pool.address + 8, 8, pool.address),
        "another plan": Instead(pool.address + 8, 8, next(one for one, _ in rolls())),  # noqa: F821
        "no nodes": Instead(pool.address + 176 + 8, 8, 0),
        "more chunks than there can be": Instead(pool.nodes + 8, 8, 2**61 + count),
        "more chunks than there is memory": Instead(pool.nodes + 8, 8, 2**32),
        "a chunk at the end of memory": Instead(chunks, 8, 2**64 - 8),
        "more owners than there can be": Instead(pool.owners + 8, 8, 2**64 - 1),
        "a cache at the end of memory": Instead(pool.address + 200, 8, 2**64 - 8),
    }.items():
        with instead:
            left = pools()  # noqa: F821
            assert len(left) == len(found) - 1, (what, len(left))
            for command in ("alluvion pools", "alluvion stacks", f"alluvion block {chunk:#x}", "alluvion blocks 1"):
                said(command)
    # Every node leads to the next, the last one to the first: no chain has an end.
    blocks = [chunk + at * plan.node_bytes + plan.node_after for at in range(plan.chunk_nodes)]
    with contextlib.ExitStack() as stack:
        for at, address in enumerate(blocks):
            stack.enter_context(Instead(address, 4, at % (len(blocks) - 1) + 1))
        assert len(pools()) == len(found)  # noqa: F821
        assert "block" in said("alluvion pools")
    (address, _), *_ = rolls()  # noqa: F821
    for what, instead in {
        "more places than there can be": Instead(address + 32, 8, 2**61 - 1),
        "places that nobody has": Instead(address + 24, 8, 0x10),
        "another layout": Instead(address + 16, 4, 7),
        "other records": Instead(address + 20, 4, 7),
    }.items():
        with instead:
            assert pools() == [], what  # noqa: F821
            assert said("alluvion pools").endswith("no suballocator lives\n"), what
    assert [one.title() for one in pools()] == [one.title() for one in found]  # noqa: F821


def check_printers():
    by_stream = (folder / "stream").read_text()
    frame = gdb.newest_frame()
    while frame is not None and "target::work" not in (frame.name() or ""):
        frame = frame.older()
    frame.select()
    vector = said("print numbers")
    assert "DeviceVec<f32" in vector and " of 1000 elements at 0x" in vector and "live, in #" in vector, vector
    assert "Pool(#" in said("print pool"), said("print pool")
    assert "DeviceVec<u8" in said("print of_graph") and " of 5000 elements at 0x" in said("print of_graph")
    tail = said("print tail")
    assert "DeviceSlice<f32> of 10 elements, 3960 bytes into what is at 0x" in tail, tail
    assert said("print stream").strip().endswith("= " + by_stream), said("print stream")
    # An address may be a value of the library.
    assert "state:   live" in said("alluvion block numbers.owned.block.address")


def main():
    if mode == "live":
        try:
            said("alluvion pools")
        except gdb.error as error:
            assert "no alluvion" in str(error), error
        gdb.execute("set pagination off")
        gdb.execute("set style enabled off")
        gdb.execute("run", to_string=True)
    assert "SIGABRT" in said("info program") or mode == "core", said("info program")
    check_all()
    if symbols == "symbols":
        check_printers()
    if mode == "live":
        said(f"generate-core-file {folder / 'core'}")
        gdb.execute("kill")
    print("\nall is as it must be")


try:
    main()
except Exception:
    traceback.print_exc()
    gdb.execute("quit 1")
