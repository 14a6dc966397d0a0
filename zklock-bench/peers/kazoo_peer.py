"""kazoo's Lock as a contestant of zklock-bench: it does as it is told, line by line."""

import json
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient


class Peer:
    def __init__(self, address):
        self.client = KazooClient(hosts=address, timeout=30)
        self.client.start(timeout=20)
        self.held = None
        self.waiters = []

    def obey(self, words):
        order, args = words[0], words[1:]
        if order == "cycles":
            return self.cycles(args[0], int(args[1]), int(args[2]))
        if order == "holds":
            return self.holds(*map(int, args))
        if order == "hold":
            self.held = self.client.Lock("/drained")
            self.held.acquire()
            return {}
        if order == "release":
            self.held.release()
            return {}
        if order == "queue":
            self.waiters = [threading.Thread(target=self.wait) for _ in range(int(args[0]))]
            for waiter in self.waiters:
                waiter.start()
            return {}
        if order == "drained":
            for waiter in self.waiters:
                waiter.join()
            return {}
        raise ValueError(f"the kazoo peer does not know '{order}'")

    def wait(self):
        lock = self.client.Lock("/drained")
        lock.acquire()
        lock.release()

    def cycles(self, shape, tasks, millis):
        start = time.monotonic_ns()
        end = start + millis * 1_000_000

        def run(task):
            latencies = []
            lock = self.client.Lock("/shared" if shape == "shared" else f"/own-{task}")
            while time.monotonic_ns() < end:
                if shape == "cold":
                    lock = self.client.Lock(f"/cold/{start}-{task}-{len(latencies)}")
                asked = time.monotonic_ns()
                lock.acquire()
                latencies.append(time.monotonic_ns() - asked)
                lock.release()
                if shape == "idle":
                    time.sleep(0.001)
            return latencies

        latencies = sorted(sum(side_by_side(run, tasks), []))
        return {
            "count": len(latencies),
            "nanos": time.monotonic_ns() - start,
            "acquire_p50": percentile(latencies, 50),
            "acquire_p99": percentile(latencies, 99),
        }

    def holds(self, tasks, hold_micros, start, stride, end):
        def run(task):
            holds = []
            lock = self.client.Lock("/shared")
            time.sleep(max(0, start + task * stride - time.monotonic_ns()) / 1e9)
            while time.monotonic_ns() < end:
                lock.acquire()
                granted = time.monotonic_ns()
                time.sleep(hold_micros / 1e6)
                holds.append((granted, time.monotonic_ns()))
                lock.release()
            return holds

        return {"holds": sum(side_by_side(run, tasks), [])}


def side_by_side(run, tasks):
    """What `run` returns for each task; a thread that fails fails all."""
    results, errors = [None] * tasks, []

    def keep(task):
        try:
            results[task] = run(task)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=keep, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def percentile(ordered, percent):
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[rank - 1] if ordered else 0


def main():
    peer = Peer(sys.argv[1])
    print("{}", flush=True)
    for line in sys.stdin:
        try:
            answer = peer.obey(line.split())
        except Exception as error:
            traceback.print_exc()
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)
    peer.client.stop()


main()
