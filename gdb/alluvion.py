"""Alluvion in gdb and cuda-gdb: what the suballocators of a program hold, live or in a core dump.

    (gdb) source alluvion.py
    (gdb) alluvion pools
    (gdb) alluvion block 0x7f2c40001200

Nothing of the program is called, and no debug information of the library is needed: a stripped library will do. With debug
information `print` shows pools, containers and stacks by what they hold.

What is read is memory of the host, as the program was stopped: in the middle of a call of the library the books may be half
written.
"""
import bisect
import functools
import re
import struct

import gdb
import gdb.printing
import gdb.types

# Must be that of the library: `src/suballoc/debugger`.
VERSION = 1
MAGIC = b"alluvion's root\0"
# The static: magic, version, bytes of a record, address and number of the places.
ROOT = struct.Struct("<16sIIQQ")
# Its own address, that of the plan, kind, machine, device, length and bytes of the text, maximum, nodes, owners, first cache.
RECORD = struct.Struct("<QQIIII140s4xQQQQ")
ARRAY = struct.Struct("<QQ")
# The next cache, the number of the stream, the entries.
CACHE = struct.Struct("<QQQ")
NO_STREAM = 2**64 - 1
NO_LIMIT = 2**60
# The end of a stack of a cache, and the most blocks that a cache may hold. A cache that is being changed may lead in a circle.
END_OF_STACK = 0xFFFF
MOST_CACHED = 2048
OF_GRAPHS = 1
# The most bytes that are read at once: the array of chunks of a billion blocks has half of them.
MOST_READ = 64 << 20

# Where in the data of a suballocator the fields are: the words of `Plan`, in its order.
PLAN = """
unit
chunk_nodes node_bytes node_address node_epoch node_units node_before node_after node_holder
holder_out holder_vacant holder_absent holder_moving holder_asleep holder_hollow
owner_bytes owner_stream
cache_shown cache_heads cache_stacks cache_large cache_large_full cache_hits cache_misses
entry_bytes entry_address entry_link
large_bytes large_address large_epoch
stream_place_bits stream_generation_bits
""".split()


class Unreadable(Exception):
    """What is there is no data of this library, or of another version of it."""


def read(address, count):
    """`count` bytes of the program."""
    if count > MOST_READ or address + count > 1 << 64:
        raise Unreadable(f"{count} bytes at {address:#x} are none of this library's data")
    try:
        return bytes(gdb.selected_inferior().read_memory(address, count))
    except gdb.error as error:
        raise Unreadable(f"{count} bytes at {address:#x} cannot be read: {error}") from None


def size(count):
    """Bytes, as the library writes them for people."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}" if count % unit == 0 else f"{count / unit:.1f} {name}"
    return f"{count} B"


def counted(count, name):
    return f"{count} {name}" + ("" if count == 1 else "s")


class Plan:
    """Where the fields of one copy of the library are."""

    def __init__(self, address):
        numbers = struct.unpack(f"<{len(PLAN)}I", read(address, 4 * len(PLAN)))
        for name, number in zip(PLAN, numbers):
            # Holders are marks. The rest counts bytes and bits within one piece of data.
            if number >= 1 << 20 and not name.startswith("holder_"):
                raise Unreadable(f"no plan of this library's data is at {address:#x}")
            setattr(self, name, number)
        if self.stream_place_bits + self.stream_generation_bits > 64:
            raise Unreadable(f"no plan of this library's data is at {address:#x}")

    def stream(self, number):
        """The number of a stream as the library writes it: machine, place, and which stream in this place."""
        generation = number & (1 << self.stream_generation_bits) - 1
        place = number >> self.stream_generation_bits & (1 << self.stream_place_bits) - 1
        machine = number >> self.stream_generation_bits + self.stream_place_bits
        return f"{machine}.{place}" + (f".{generation}" if generation else "")


class Block:
    """A piece of a segment. `state` is `live`, `cached`, `pending`, `free`, `asleep`, `moving` or `absent`."""

    def __init__(self, address, count, state, stream=None, epoch=None):
        self.address, self.bytes, self.state, self.stream, self.epoch = address, count, state, stream, epoch

    @property
    def end(self):
        return self.address + self.bytes

    def words(self):
        if self.state == "live":
            return "live"
        if self.state == "cached":
            of = f"of stream {self.stream}" if self.stream else "of synchronous calls"
            return f"free, in the cache {of}"
        if self.state == "pending":
            return f"free, behind epoch {self.epoch} of stream {self.stream}, on which it was freed"
        return {
            "free": "free, for every stream",
            "asleep": "live, and asleep: there is no memory behind it",
            "moving": "being mapped or unmapped",
            "absent": "addresses without memory",
        }[self.state]


class Segment:
    """Blocks that lie one behind the other, without gaps."""

    def __init__(self, blocks):
        self.blocks = blocks
        self.address, self.end = blocks[0].address, blocks[-1].end


class Pool:
    """A suballocator: of whatever kind."""

    def __init__(self, number, address):
        (itself, plan, self.kind, self.machine, self.device, length, text, self.maximum, self.nodes, self.owners,
         self.first_cache) = RECORD.unpack(read(address, RECORD.size))
        if itself != address:
            raise Unreadable(f"no record of a suballocator is at {address:#x}")
        self.number, self.address, self.plan = number, address, Plan(plan)
        # It was made with nothing in it, nor in the layers below, whatever they hold now. A layer may be the program's own, and
        # write whatever it likes.
        text = text[:length].decode("utf-8", "replace").replace("(0 B)", "")
        self.text = "".join(letter if letter.isprintable() else "?" for letter in text)

    def caches(self):
        """For each cache its address, and the number of its stream."""
        shown, seen = self.first_cache, set()
        while shown and shown not in seen:
            seen.add(shown)
            following, stream, _ = CACHE.unpack(read(shown, CACHE.size))
            yield shown - self.plan.cache_shown, stream
            shown = following

    def cached(self):
        """The blocks in caches: by address the number of the stream."""
        plan, found = self.plan, {}
        for cache, stream in self.caches():
            _, _, entries = CACHE.unpack(read(cache + plan.cache_shown, CACHE.size))
            heads = struct.unpack(f"<{plan.cache_stacks}H", read(cache + plan.cache_heads, 2 * plan.cache_stacks))
            for at in heads:
                for _ in range(MOST_CACHED):
                    if at == END_OF_STACK:
                        break
                    entry = read(entries + at * plan.entry_bytes, plan.entry_bytes)
                    (address,) = struct.unpack_from("<Q", entry, plan.entry_address)
                    (link,) = struct.unpack_from("<Q", entry, plan.entry_link)
                    found[address] = stream
                    at = link & 0xFFFF
            (large,) = struct.unpack("<Q", read(cache + plan.cache_large, 8))
            (full,) = struct.unpack("<Q", read(cache + plan.cache_large_full, 8))
            if large and full:
                ways = read(large, plan.large_bytes * full.bit_length())
                for way in range(full.bit_length()):
                    if full >> way & 1:
                        (address,) = struct.unpack_from("<Q", ways, way * plan.large_bytes + plan.large_address)
                        found[address] = stream
        return found

    def streams(self):
        """The number of the stream of each owner."""
        at, count = ARRAY.unpack(read(self.owners, ARRAY.size))
        owners = read(at, count * self.plan.owner_bytes)
        return [struct.unpack_from("<Q", owners, place * self.plan.owner_bytes + self.plan.owner_stream)[0]
                for place in range(count)]

    @functools.cached_property
    def chains(self):
        """The blocks of each range of addresses, one behind the other."""
        plan, nodes, firsts = self.plan, {}, []
        cached, streams = self.cached(), self.streams()
        at, count = ARRAY.unpack(read(self.nodes, ARRAY.size))
        chunks = struct.unpack(f"<{count}Q", read(at, 8 * count)) if count else ()
        states = {plan.holder_out: "live", plan.holder_absent: "absent", plan.holder_moving: "moving",
                  plan.holder_asleep: "asleep", plan.holder_hollow: "absent", 0: "free"}
        for chunk, address in enumerate(chunks):
            data = read(address, plan.chunk_nodes * plan.node_bytes)
            for place in range(plan.chunk_nodes):
                offset = place * plan.node_bytes
                (holder,) = struct.unpack_from("<I", data, offset + plan.node_holder)
                number = chunk * plan.chunk_nodes + place
                if holder == plan.holder_vacant or number == 0:
                    continue
                (address,) = struct.unpack_from("<Q", data, offset + plan.node_address)
                (units,) = struct.unpack_from("<I", data, offset + plan.node_units)
                (before,) = struct.unpack_from("<I", data, offset + plan.node_before)
                (after,) = struct.unpack_from("<I", data, offset + plan.node_after)
                block = Block(address, units * plan.unit, states.get(holder, "pending"))
                if block.state == "live" and address in cached:
                    block.state = "cached"
                    stream = cached[address]
                    block.stream = None if stream == NO_STREAM else plan.stream(stream)
                elif block.state == "pending":
                    (block.epoch,) = struct.unpack_from("<Q", data, offset + plan.node_epoch)
                    stream = streams[holder] if holder < len(streams) else NO_STREAM
                    block.stream = "?" if stream == NO_STREAM else plan.stream(stream)
                nodes[number] = (block, after)
                if before == 0:
                    firsts.append(number)
        chains = []
        for first in firsts:
            chain, number = [], first
            # A book that is half written may lead in a circle: a node is in one chain, and once.
            while number in nodes:
                block, number = nodes.pop(number)
                chain.append(block)
            if chain:
                chains.append(chain)
        return sorted(chains, key=lambda chain: chain[0].address)

    @functools.cached_property
    def firsts(self):
        """Where each of the chains begins."""
        return [chain[0].address for chain in self.chains]

    @functools.cached_property
    def beginnings(self):
        """Where the blocks of each of the chains begin."""
        return [[block.address for block in chain] for chain in self.chains]

    @functools.cached_property
    def segments(self):
        """Memory without gaps: of a range of addresses that is mapped page by page each stretch."""
        found = []
        for chain in self.chains:
            stretch = []
            for block in chain + [None]:
                if block is not None and block.state not in ("absent", "moving", "asleep"):
                    stretch.append(block)
                elif stretch:
                    found.append(Segment(stretch))
                    stretch = []
        return found

    def sum(self, *states):
        """How many blocks have one of these states, and their bytes."""
        blocks = [block for chain in self.chains for block in chain if block.state in states]
        return len(blocks), sum(block.bytes for block in blocks)

    @property
    def reserved(self):
        return sum(segment.end - segment.address for segment in self.segments)

    def title(self):
        return f"#{self.number} {self.text} on device {self.device} of machine {self.machine}"

    def figures(self):
        (live, live_bytes), (_, cached), (_, asleep) = self.sum("live"), self.sum("cached"), self.sum("asleep")
        _, free = self.sum("pending", "free")
        words = f"{size(self.reserved)} in {counted(len(self.segments), 'segment')}"
        words += f": {size(live_bytes)} live in {counted(live, 'block')}"
        words += f", {size(cached)} in caches, {size(free)} free"
        if asleep:
            words += f", {size(asleep)} asleep"
        return words if self.maximum >= NO_LIMIT else f"{words}; at most {size(self.maximum)}"

    def find(self, address):
        """The segment and the block that an address lies in, and which one of its chain that is."""
        number = bisect.bisect_right(self.firsts, address) - 1
        if number < 0:
            return None
        chain = self.chains[number]
        at = bisect.bisect_right(self.beginnings[number], address) - 1
        return (chain, at) if at >= 0 and chain[at].address <= address < chain[at].end else None


def rolls():
    """The addresses of the statics, one for each copy of the library, and the file that each is in."""
    for line in gdb.execute("info files", to_string=True).splitlines():
        found = re.match(r"\s*(0x[0-9a-f]+) - (0x[0-9a-f]+) is \.alluvion(?: in (.*))?$", line)
        if found:
            begin, end = int(found[1], 16), int(found[2], 16)
            for address in range(begin, end - ROOT.size + 1, ROOT.size):
                yield address, found[3] or "the program"


# What `known_pools` has read, and of which program.
_known = {}


def pools():
    """Every suballocator that lives and can be read, numbered in the order in which they are listed."""
    found, files, problems = [], [], []
    for address, file in rolls():
        try:
            magic, version, record_bytes, places, count = ROOT.unpack(read(address, ROOT.size))
            if magic != MAGIC:
                continue
            files.append(file)
            if version != VERSION:
                raise Unreadable(f"it is of layout {version}, and this script knows {VERSION}")
            if record_bytes != RECORD.size:
                raise Unreadable(f"its records have {record_bytes} bytes, and this script knows those of {RECORD.size}")
            for place in struct.unpack(f"<{count}Q", read(places, 8 * count)) if count else ():
                if place:
                    try:
                        pool = Pool(len(found) + 1, place)
                        # All of it, so that one that cannot be read leaves the others to be shown.
                        pool.chains
                        found.append(pool)
                    except (Unreadable, struct.error) as error:
                        problems.append(f"the suballocator at {place:#x} is left out: {error}")
        except Unreadable as error:
            problems.append(f"{file}: {error}")
    if not files and not problems:
        raise gdb.GdbError("there is no alluvion in this program, or it is not loaded yet")
    for problem in problems:
        gdb.write(f"warning: {problem}\n", gdb.STDERR)
    inferior = gdb.selected_inferior()
    _known.clear()
    _known[inferior.num, inferior.pid] = found
    return found


def known_pools():
    """As `pools`, read once while the program is stopped: one value that is printed may have thousands of addresses in it."""
    inferior = gdb.selected_inferior()
    found = _known.get((inferior.num, inferior.pid))
    return pools() if found is None else found


def forget(_event):
    """The program has run, or its memory was written."""
    _known.clear()


for _event in ("cont", "exited", "inferior_call", "memory_changed", "new_objfile", "clear_objfiles"):
    getattr(gdb.events, _event).connect(forget)


def below(pool, all_pools):
    """The suballocator whose blocks are the segments of this one."""
    for other in all_pools:
        if other is not pool and pool.chains and other.find(pool.chains[0][0].address):
            return other
    return None


def number_of(value):
    """An address: a number, a pointer, or a struct around one, such as `DevicePtr`."""
    value_type = value.type.strip_typedefs()
    for _ in range(8):
        if value_type.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            break
        if not value_type.fields():
            raise gdb.GdbError(f"there is no address in a value of the type {value_type}")
        value = value[value_type.fields()[0]]
        value_type = value.type.strip_typedefs()
    return int(value) & 2**64 - 1


class Alluvion(gdb.Command):
    """What the suballocators of the library alluvion hold: see `help alluvion pools`, `block`, `blocks` and `stacks`."""

    def __init__(self):
        super().__init__("alluvion", gdb.COMMAND_DATA, prefix=True)


class Command(gdb.Command):
    """A command of `alluvion`, which says in a line what cannot be read."""

    def __init__(self, name):
        super().__init__(f"alluvion {name}", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        try:
            self.run(argument.strip())
        except Unreadable as error:
            raise gdb.GdbError(str(error)) from None


class Pools(Command):
    """Lists the suballocators, with what they hold.

    alluvion pools
    """

    def run(self, _argument):
        found = pools()
        for pool in found:
            print(f"{pool.title()}\n   {pool.figures()}")
        if not found:
            print("no suballocator lives")


class BlockAt(Command):
    """Says what is at an address: in which suballocator, in which segment, and whether it is live, in a cache or free.

    alluvion block ADDRESS

    ADDRESS is an expression: a number, a pointer, or a value of the library that holds one.
    """

    def run(self, argument):
        if not argument:
            raise gdb.GdbError("alluvion block ADDRESS")
        address = number_of(gdb.parse_and_eval(argument))
        # A segment of one suballocator may be a block of another one.
        found = [(pool, pool.find(address)) for pool in pools()]
        found = [(pool, *place) for pool, place in found if place]
        if not found:
            print(f"{address:#x} is in no suballocator")
        for pool, chain, at in sorted(found, key=lambda one: one[1][one[2]].bytes):
            block = chain[at]
            inside = f"{address - block.address:#x} bytes into" if address > block.address else "the beginning of"
            print(f"{address:#x} is {inside} a block of {size(block.bytes)} at {block.address:#x}")
            print(f"   state:   {block.words()}")
            print(f"   in:      {pool.title()}" + (", which graphs have" if pool.kind == OF_GRAPHS else ""))
            segment = next((one for one in pool.segments if one.address <= address < one.end), None)
            if segment:
                print(f"   segment: {size(segment.end - segment.address)} at {segment.address:#x}")
            for word, place in (("before", at - 1), ("behind", at + 1)):
                if 0 <= place < len(chain):
                    other = chain[place]
                    print(f"   {word}:  {size(other.bytes)} at {other.address:#x}, {other.words()}")


class Blocks(Command):
    """Lists the blocks of a suballocator, in the order of their addresses.

    alluvion blocks NUMBER [STATE]

    NUMBER is that of `alluvion pools`; STATE is `live`, `cached`, `pending`, `free` or `asleep`.
    """

    def run(self, argument):
        number, _, state = argument.partition(" ")
        found = [pool for pool in pools() if str(pool.number) == number.lstrip("#")]
        if not found:
            raise gdb.GdbError("alluvion blocks NUMBER [STATE]: `alluvion pools` has the numbers")
        for chain in found[0].chains:
            for block in chain:
                if state in ("", block.state):
                    print(f"{block.address:#x} {block.bytes:12} {block.words()}")


class Stacks(Command):
    """Shows each suballocator with the layers below it, one a line, as they were when it was made.

    alluvion stacks

    Layers above a suballocator hold no memory, and are not seen. Where its segments are blocks of another one, that is named.
    """

    def run(self, _argument):
        found = pools()
        for pool in found:
            layers = pool.text.split(" > ")
            print(f"#{pool.number} {layers[0]}: {pool.figures()}")
            for depth, layer in enumerate(layers[1:], 1):
                print("   " * depth + "> " + layer)
            under = below(pool, found)
            if under:
                print(f"   its segments are blocks of #{under.number}")


class OfPool:
    """Prints `Pool`, `Arena`, `FixedSize` and the books of them."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        name = str(self.value.type.strip_typedefs()).split("<")[0].rsplit("::", 1)[-1]
        try:
            value = self.value
            for field in ("engine", "book"):
                if gdb.types.has_field(value.type.strip_typedefs(), field):
                    value = value[field]
            shown = value["shown"]
            begin, length = number_of(shown), shown.type.strip_typedefs().target().sizeof
            pool = next((pool for pool in known_pools() if begin <= pool.address < begin + length), None)
            return f"{name}({pool.title()}: {pool.figures()})" if pool else f"{name}(not listed)"
        except (Unreadable, gdb.error) as error:
            return f"{name}({error})"


class OfBlock:
    """Prints `DevicePtr`: where it leads to."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        address = number_of(self.value)
        try:
            for pool in known_pools():
                place = pool.find(address)
                if place:
                    block = place[0][place[1]]
                    return f"{address:#x} ({size(block.bytes)}, {block.words()}, in #{pool.number})"
        except (Unreadable, gdb.GdbError):
            pass
        return f"{address:#x}"


class OfContainer:
    """Prints `DeviceVec`, of which `DeviceBuffer` is one, `DeviceScalar` and their slices: where, and how long."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        value, value_type = self.value, self.value.type.strip_typedefs()
        name = re.sub(r"(\w+::)+", "", str(value_type))
        element = value_type.template_argument(0)
        at, count = 0, None
        while True:
            fields = [field.name for field in value.type.strip_typedefs().fields()]
            if "at" in fields:
                at, count = int(value["at"]), int(value["len"])
            inner = next((field for field in ("slice", "vector", "owned", "block") if field in fields), None)
            if inner is None:
                break
            value = value[inner]
            if value.type.strip_typedefs().code in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF):
                value = value.dereference()
        if count is None:
            count = int(value["len"]) // (element.sizeof or 1)
        what = f"{count} elements" + (f", {at} bytes into what is" if at else "")
        return f"{name} of {what} at {OfBlock(value['address']).to_string()}"


class OfStream:
    """Prints `StreamId` as the library does."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        found = known_pools()
        return found[0].plan.stream(number_of(self.value)) if found else str(number_of(self.value))


def printers():
    found = gdb.printing.RegexpCollectionPrettyPrinter("alluvion")
    for name, types, printer in (
        ("suballocators", r"^alluvion::suballoc::(pool::Pool|arena::Arena|fixed_size::FixedSize)<.*>$", OfPool),
        ("books", r"^alluvion::suballoc::engine::(Engine<.*>|book::SuballocBook)$", OfPool),
        ("addresses", r"^alluvion::driver::device_ptr::DevicePtr$", OfBlock),
        ("containers",
         r"^alluvion::container::(device_vec::DeviceVec|device_scalar::DeviceScalar"
         r"|device_slice::DeviceSlice|device_slice_mut::DeviceSliceMut)<.*>$", OfContainer),
        ("streams", r"^alluvion::order::id::StreamId$", OfStream),
    ):
        found.add_printer(name, types, printer)
    return found


Alluvion()
for command, name in ((Pools, "pools"), (BlockAt, "block"), (Blocks, "blocks"), (Stacks, "stacks")):
    command(name)
gdb.printing.register_pretty_printer(None, printers(), replace=True)
