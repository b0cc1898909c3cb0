"""The work of work.c on Mooncake Store over TCP, inside the virtual environment: its client is a Python module.

    peer_mooncake.py owner|write|read PORT HTTP MASTER SECONDS SIZE:BATCH..

owner: offers the memory, prints "ready", stays until its input ends. write and read offer none, so that every byte crosses
a connection. Both take registered buffers and print what work.c prints.
"""
import json
import sys
import time

import numpy
from mooncake.store import MooncakeDistributedStore

MIB = 1 << 20
BYTES, OBJECTS_MAX, STRIDE, CALLS_MIN = 128 * MIB, 8192, 2654435761, 10  # as in work.c


class Work:
    def __init__(self, store, seconds):
        self.store, self.seconds = store, seconds
        self.content = numpy.random.default_rng(1).integers(0, 256, BYTES, dtype=numpy.uint8)
        self.room = numpy.zeros(32 * MIB, dtype=numpy.uint8)
        for memory in (self.content, self.room):
            if store.register_buffer(memory.ctypes.data, memory.nbytes):
                sys.exit("mooncake: register_buffer failed")

    def choose(self, n, size, at, put):
        count = objects_of(size)
        return [at + i if put else (at + i) * STRIDE % count for i in range(n)]

    def put(self, size, which):
        """Nanoseconds."""
        keys, places = self.keys(size, which), [self.content.ctypes.data + i * size for i in which]
        begin = time.perf_counter_ns()
        if len(keys) == 1:
            got = [self.store.put_from(keys[0], places[0], size)]
        else:
            got = self.store.batch_put_from(keys, places, [size] * len(keys))
        took = time.perf_counter_ns() - begin
        if any(got):
            sys.exit(f"mooncake: put of {size} bytes: {got}")
        return took

    def get(self, size, which, reads):
        keys, places = self.keys(size, which), [self.room.ctypes.data + i * size for i in range(len(which))]
        words = self.room.view(numpy.uint64)[:size * len(which) // 8]
        begin = time.perf_counter_ns()
        if len(keys) == 1:
            got = [self.store.get_into(keys[0], places[0], size)]
        else:
            got = self.store.batch_get_into(keys, places, [size] * len(keys))
        if reads:
            words.sum()
        took = time.perf_counter_ns() - begin
        if list(got) != [size] * len(keys):
            sys.exit(f"mooncake: get of {size} bytes: {got}")
        for i, object_at in enumerate(which):
            if not numpy.array_equal(self.room[i * size:(i + 1) * size],
                                     self.content[object_at * size:(object_at + 1) * size]):
                sys.exit("mooncake: the bytes differ")
        return took

    def keys(self, size, which):
        return [f"{size:07}-{i:012}" for i in which]

    def put_all(self, size):
        count, step = objects_of(size), 32 if size < 2 * MIB else 8
        for at in range(0, count, step):
            self.put(size, range(at, min(at + step, count)))

    def remove(self, size, count):
        for at in range(0, count, 512):
            got = self.store.batch_remove(self.keys(size, range(at, min(at + 512, count))), True)
            if any(got):
                sys.exit(f"mooncake: remove: {got}")

    def measure(self, case, size, n):
        put, took, at, count = case.startswith("put"), [], 0, objects_of(size)
        end = time.monotonic() + self.seconds
        while time.monotonic() < end or len(took) < CALLS_MIN:
            if at + n > count:
                if put:
                    self.remove(size, at)
                at = 0
            which = self.choose(n, size, at, put)
            took.append(self.put(size, which) if put else self.get(size, which, case == "get+read"))
            at += n
        if put:
            self.remove(size, at)
        took.sort()
        print(json.dumps({"case": case, "size": size, "batch": n, "calls": len(took), "p50_ns": took[len(took) // 2],
                          "p99_ns": took[len(took) * 99 // 100],
                          "bytes_per_second": size * n * len(took) / sum(took) * 1e9}), flush=True)

    def call_ns(self):
        """What a call into the module costs that asks nobody."""
        took = []
        for _ in range(1000):
            begin = time.perf_counter_ns()
            self.store.get_hostname()
            took.append(time.perf_counter_ns() - begin)
        return sorted(took)[500]


def objects_of(size):
    return min(OBJECTS_MAX, BYTES // size)


def store_open(port, http, master, segment):
    store = MooncakeDistributedStore()
    rc = store.setup(f"127.0.0.1:{port}", f"http://127.0.0.1:{http}/metadata", segment, 64 * MIB, "tcp", "",
                     f"127.0.0.1:{master}")
    if rc:
        sys.exit(f"mooncake: setup: {rc}")
    return store


def main():
    role, port, http, master, seconds = sys.argv[1:6]
    if role == "owner":
        store = store_open(port, http, master, 1024 * MIB)
        print("ready", flush=True)
        sys.stdin.read()
        store.close()
        return
    work = Work(store_open(port, http, master, 0), float(seconds))
    print(json.dumps({"client": f"Python, of which a call is {work.call_ns() / 1e3:.1f} us"}))
    sizes = [tuple(map(int, text.split(":"))) for text in sys.argv[6:]]
    for size, batch in sizes:
        if role == "write":
            work.put_all(size)
            work.remove(size, objects_of(size))
            work.measure("put", size, 1)
            work.measure("put-batch", size, batch)
        else:
            work.measure("get", size, 1)
            work.measure("get+read", size, 1)
            work.measure("get-batch", size, batch)
    for size, _ in sizes if role == "write" else []:
        work.put_all(size)
    work.store.close()


if __name__ == "__main__":
    main()
