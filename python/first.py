"""A first program, on a simulated GPU: two tables in one pool, counted and drawn as a page."""

import alluvion

with alluvion.simulated(memory="1 GiB") as sim:
    stack = alluvion.resource("stats | tracking(stacks=all) | auto")
    held = []
    with alluvion.using(stack):
        for name in ("orders", "customers"):
            with alluvion.tag(name):
                held.append((stack.allocate(48 << 20), 48 << 20))
        print(stack)
        for tag, counts in stack.stats_by_tag().items():
            print(f"{tag or 'no tag':>10}: {counts.bytes >> 20} MiB in {counts.allocations} allocations")
        print(stack.blocks_report())
        stack.snapshot().save("pool.html")
        print("pool.html shows the pool")
    for block in held:
        stack.deallocate(*block)
    del stack
