#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `vmcc cp` makes of two paths: how much of both it uses, how long it stands still when one is cut in silence, and what it leaves to a TCP
connection at a bottleneck that its paths share.

    sudo scripts/paths.py [--vmcc target/release/vmcc] [aggregation|stall|share]...

Two hosts and a router are network namespaces of its own, with token buckets for links; there is no delay but that of their queues. Nothing
of the host is changed, and all of it is gone at the end. Rates are those at which the file grows at the receiver. Prints Markdown."""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BURST_KIB = 64
QUEUE_MS = 30
POLL_S = 0.002


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Net:
    """Two ways: here - router - there, by `p0` and `q0`, and by `p1` and `q1`."""

    def __init__(self):
        self.here, self.router, self.there = (f"vmcc-{os.getpid()}-{name}" for name in "hrt")
        for space in (self.here, self.router, self.there):
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        for way in (0, 1):
            self.join(self.here, f"p{way}", f"10.9.{way + 1}")
            self.join(self.there, f"q{way}", f"10.9.{way + 3}")
        run("ip", "netns", "exec", self.router, "sysctl", "-q", "net.ipv4.ip_forward=1")

    def join(self, host, port, net):
        run("ip", "-n", host, "link", "add", port, "type", "veth", "peer", "name", port, "netns", self.router)
        run("ip", "-n", host, "address", "add", f"{net}.1/24", "dev", port)
        run("ip", "-n", self.router, "address", "add", f"{net}.2/24", "dev", port)
        for space in (host, self.router):
            run("ip", "-n", space, "link", "set", port, "up")
        # A socket that is bound to an interface needs a way there.
        metric = str(100 + int(port[1]))
        run("ip", "-n", host, "route", "add", "default", "via", f"{net}.2", "dev", port, "metric", metric)

    def shape(self, space, port, mbit):
        rate = f"root tbf rate {mbit}mbit burst {BURST_KIB}k latency {QUEUE_MS}ms".split()
        run("tc", "-n", space, "qdisc", "replace", "dev", port, *rate)

    def shape_way(self, way, mbit):
        self.shape(self.here, f"p{way}", mbit)
        self.shape(self.router, f"p{way}", mbit)

    def cut(self, way, verb):
        """The router swallows everything of a way, in both directions, and tells nobody."""
        run("ip", "-n", self.router, "rule", verb, "iif", f"p{way}", "blackhole")
        run("ip", "-n", self.router, "rule", verb, "to", f"10.9.{way + 1}.0/24", "blackhole")

    def cut_into_packets(self):
        """Has all that leaves here be packets before it comes to the router, as on a wire, not what the kernel would segment later."""
        for way in (0, 1):
            run("ip", "-n", self.here, "link", "set", f"p{way}", "gso_max_segs", "1")

    def sent_by(self, way):
        path = f"/sys/class/net/p{way}/statistics/tx_bytes"
        words = ("ip", "netns", "exec", self.here, "cat", path)
        return int(subprocess.run(words, check=True, capture_output=True).stdout)

    def remove(self):
        for space in (self.here, self.router, self.there):
            subprocess.run(("ip", "netns", "del", space), check=False)


class Copy:
    """A copy under way from here to there, started through what it takes for ssh."""

    def __init__(self, net, options, size, locals_, remotes=()):
        self.folder = tempfile.mkdtemp(dir=options.folder)
        self.ended = None
        source, self.target = os.path.join(self.folder, "data"), os.path.join(self.folder, "there")
        os.mkdir(self.target)
        with open(source, "wb") as file:
            file.truncate(size)
        ssh = os.path.join(self.folder, "ssh")
        with open(ssh, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n# HOST and the command there, whose first word is the program.\nshift\nexec ip netns exec {net.there} {options.vmcc} ${{*#* }}\n")
        os.chmod(ssh, 0o755)
        ways = [word for address in locals_ for word in ("--local", address)]
        ways += [word for address in remotes for word in ("--remote", address)]
        words = ["ip", "netns", "exec", net.here, options.vmcc, "--json", "cp", "--ssh", ssh, *ways, source]
        words.append(f"there:{self.target}")
        out = open(os.path.join(self.folder, "out"), "w+", encoding="utf-8")
        self.child = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)

    def size(self):
        """Bytes that have arrived."""
        for name in (".data.vmcc-part", "data"):
            try:
                return os.stat(os.path.join(self.target, name)).st_size
            except FileNotFoundError:
                pass
        return 0

    def wait_for(self, size, seconds=20):
        end = time.monotonic() + seconds
        while self.size() < size:
            if time.monotonic() > end or self.child.poll() not in (None, 0):
                with open(os.path.join(self.folder, "out"), encoding="utf-8") as out:
                    sys.exit(f"paths: the copy does not go on: {out.read()}")
            time.sleep(POLL_S)
        return time.monotonic()

    def end(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        # The far end goes when nobody answers; its files may go before.
        shutil.rmtree(self.folder, ignore_errors=True)


def address(way):
    return f"10.9.{way + 1}.1"


def rate(net, options, ways, mbits):
    """Mbit/s of a copy between its first and its last tenth."""
    size = int(sum(mbits[way] for way in ways) * 125_000 * options.seconds)
    copy = Copy(net, options, size, [address(way) for way in ways])
    try:
        begin = copy.wait_for(size // 10)
        done = copy.wait_for(size * 9 // 10, 10 * options.seconds)
        return size * 0.8 * 8e-6 / (done - begin)
    finally:
        copy.end()


def spread(values, digits):
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def aggregation(net, options):
    print("| Mbit/s of the ways | first alone | second alone | both | share of the sum | runs |\n|---|---|---|---|---|---|")
    for mbits in ((200, 200), (200, 50)):
        for way in (0, 1):
            net.shape_way(way, mbits[way])
        rows = [[rate(net, options, ways, mbits) for ways in ((0,), (1,), (0, 1))] for _ in range(options.runs)]
        shares = [both / (first + second) for first, second, both in rows]
        cells = [spread(column, 1) for column in zip(*rows)]
        print(f"| {mbits[0]} + {mbits[1]} | {' | '.join(cells)} | **{spread(shares, 3)}** | {options.runs} |", flush=True)


def longest_stop(copy, until):
    """The longest time in which nothing arrived."""
    last, at, longest = copy.size(), time.monotonic(), 0.0
    while (now := time.monotonic()) < until:
        size = copy.size()
        if size > last:
            longest, last, at = max(longest, now - at), size, now
        time.sleep(POLL_S)
    return max(longest, time.monotonic() - at)


def both_carry(net, copy):
    """Waits until both ways carry as much as they can, for a second at most."""
    for _ in range(40):
        before = [net.sent_by(way) for way in (0, 1)]
        time.sleep(0.1)
        if all(net.sent_by(way) - was > 1_500_000 for way, was in zip((0, 1), before)):
            return
    sys.exit("paths: a way that was cut is not used again")


def stall(net, options):
    for way in (0, 1):
        net.shape_way(way, 200)
    quiet, stops, copy = [], [], None
    try:
        for i in range(options.cuts):
            if i % 8 == 0:
                if copy:
                    copy.end()
                copy = Copy(net, options, 8 << 30, [address(0), address(1)])
                copy.wait_for(20_000_000)
            both_carry(net, copy)
            # What stands still without a cut, in as long a time.
            quiet.append(longest_stop(copy, time.monotonic() + random.uniform(0.5, 1.5)))
            way = random.randrange(2)
            net.cut(way, "add")
            stops.append(longest_stop(copy, time.monotonic() + 1.5))
            net.cut(way, "del")
    finally:
        if copy:
            copy.end()
    print("| | runs | median ms | p95 ms | longest ms |\n|---|---|---|---|---|")
    for name, values in (("no cut", quiet), ("a way cut in silence", stops)):
        values = sorted(1000 * value for value in values)
        p95 = values[min(len(values) - 1, -(-95 * len(values) // 100) - 1)]
        middle = statistics.median(values)
        print(f"| {name} | {len(values)} | {middle:.0f} | **{p95:.0f}** | **{values[-1]:.0f}** |", flush=True)


def one_share(net, options, algorithm):
    """What a TCP connection gets of what both get, beside a copy."""
    skip, last = 5, options.share_seconds
    ways = [address(way) for way in range(options.share_ways)]
    server = subprocess.Popen(
        ("ip", "netns", "exec", net.there, "iperf3", "-s", "-1", "-B", "10.9.3.1"), stdout=subprocess.DEVNULL
    )
    copy = Copy(net, options, options.mbit * 125_000 * (2 * skip + last + 5), ways, ["10.9.3.1"])
    try:
        copy.wait_for(1_000_000)
        words = f"ip netns exec {net.here} iperf3 -J -c 10.9.3.1 -C {algorithm} -O {skip} -t {last}".split()
        client = subprocess.Popen(words, stdout=subprocess.PIPE)
        time.sleep(skip)
        before = copy.size()
        time.sleep(last)
        own = copy.size() - before
        tcp = json.loads(client.communicate()[0])["end"]["sum_received"]["bytes"]
        return tcp / (tcp + own)
    finally:
        copy.end()
        server.kill()
        server.wait()


def share(net, options):
    for way in (0, 1):
        for space in (net.here, net.router):
            subprocess.run(("tc", "-n", space, "qdisc", "del", "dev", f"p{way}", "root"), stderr=subprocess.DEVNULL, check=False)
    net.shape(net.router, "q0", options.mbit)
    if not options.whole:
        net.cut_into_packets()
    beside = "two subflows of `lia`" if options.share_ways == 2 else "one path of `lia`, which is `reno`"
    print(f"| one TCP beside {beside}, {options.mbit} Mbit/s | mean share of TCP | median (spread) | runs |\n|---|---|---|---|")
    for algorithm in options.share_tcp.split(","):
        shares = [one_share(net, options, algorithm) for _ in range(options.share_runs)]
        mean, deviation = statistics.mean(shares), statistics.stdev(shares)
        print(f"| {algorithm} | **{mean:.2f}** +- {deviation:.2f} | {spread(shares, 2)} | {len(shares)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = {"aggregation": aggregation, "stall": stall, "share": share}
    parser.add_argument("what", nargs="*", help="aggregation, stall, share; all if not said")
    parser.add_argument("--vmcc", default="target/release/vmcc", help="the program")
    parser.add_argument("--folder", default="/dev/shm", help="where the copies are (default: memory)")
    parser.add_argument("--runs", type=int, default=5, help="of each aggregation")
    parser.add_argument("--seconds", type=float, default=5, help="that a run of aggregation takes about")
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--share-runs", type=int, default=10)
    parser.add_argument("--share-ways", type=int, default=2, choices=(1, 2), help="of the copy (default: 2)")
    parser.add_argument("--share-tcp", default="reno,cubic", help="algorithms of the TCP connection")
    parser.add_argument("--whole", action="store_true", help="share: packets that the kernel would segment later reach the bottleneck, and are dropped, as one")
    parser.add_argument("--share-seconds", type=int, default=20)
    parser.add_argument("--mbit", type=int, default=30, help="of the shared bottleneck")
    options = parser.parse_args()
    options.vmcc = os.path.abspath(options.vmcc)
    wrong = [name for name in options.what if name not in what]
    if wrong:
        parser.error(f"there is no measurement {wrong[0]}; there are {', '.join(what)}")
    if os.geteuid() != 0:
        sys.exit("paths: network namespaces need root; run it with sudo")
    if not os.access(options.vmcc, os.X_OK):
        sys.exit(f"paths: {options.vmcc} is no program; build it with `cargo build --release`, or name another with --vmcc")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {load}.\n")
    for name in options.what or what:
        net = Net()
        try:
            what[name](net, options)
        finally:
            net.remove()
        print()


if __name__ == "__main__":
    main()
