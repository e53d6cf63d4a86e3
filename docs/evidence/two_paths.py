#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""One stream over two paths of 20 Mbit/s by TCP, MPTCP, vmcc over QUIC, vmcc over TCP carriers, and aggligator: goodput, stall when the first path is
cut, CPU time, bytes on the wire.

    sudo docs/evidence/two_paths.py --vmcc target/release/vmcc [--agg-tunnel agg-tunnel] [--runs 5] [--lock FILE]

Two hosts are network namespaces with a token bucket at each end of each path. Runs in mounts of its own: all is gone at the end. In each round every
system has its turn; FILE is locked meanwhile (flock), so that other work that shares the lock waits. Prints Markdown; aggligator is left out without
its program.
"""
import argparse
import contextlib
import fcntl
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

RATE, PORT, FORWARDED, IPPROTO_MPTCP = "20mbit", 5001, 5002, 262
WARMUP_S, MEASURE_S, CUT_S, START_TIMEOUT_S = 2.0, 5.0, 4.0, 20.0
HOSTS = ("here", "there")
PRIVATE = "mount -t tmpfs -o mode=755 none /run && mkdir /run/netns && exec \"$@\""


def send(address, port, proto):
    """Sends zeros until it is killed; waits for a listener."""
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(proto))
        try:
            stream.connect((address, int(port)))
            break
        except OSError:
            stream.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    while True:
        stream.sendall(bytes(1 << 16))


def sink(proto):
    """Prints a line per read: the time, and the bytes so far."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(proto)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", PORT))
        listener.listen()
        stream, _ = listener.accept()
    buffer, total = bytearray(1 << 16), 0
    while length := stream.recv_into(buffer):
        total += length
        sys.stdout.write(f"{time.monotonic()} {total}\n")


def run(command):
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


def make_network():
    for host in HOSTS:
        run(f"ip netns add {host}")
        run(f"ip -n {host} link set lo up")
        run(f"ip netns exec {host} sysctl -q net.ipv4.tcp_congestion_control=cubic")
    for path in (0, 1):
        run(f"ip -n here link add p{path} type veth peer name p{path} netns there")
        for number, host in enumerate(HOSTS, 1):
            run(f"ip -n {host} address add 10.80.{path}.{number}/24 dev p{path}")
            run(f"ip -n {host} link set p{path} up")
            run(f"tc -n {host} qdisc add dev p{path} root tbf rate {RATE} burst 16kb latency 50ms")
    run("ip -n here mptcp limits set subflows 2 add_addr_accepted 2")
    run("ip -n there mptcp endpoint add 10.80.1.2 dev p1 signal")


def set_cut(action):
    """Both hosts drop, or not, whatever arrives by the first path."""
    for host in HOSTS:
        run(f"ip netns exec {host} iptables -{action} INPUT -i p0 -j DROP")


class Processes:
    """Programs of a run, in their hosts."""

    def __init__(self, folder):
        self.folder, self.children = folder, []

    def start(self, host, *words):
        """Starts one; the file that its output goes to."""
        name = os.path.join(self.folder, f"{len(self.children)}")
        with open(name, "w", encoding="utf-8") as out:
            command = ["ip", "netns", "exec", host, *words]
            self.children.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))
        return name

    def cpu_s(self, first, end):
        """CPU time of all threads of some. `ip netns exec` becomes the program."""
        total = 0
        for child in self.children[first:end]:
            tasks = f"/proc/{child.pid}/task"
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/schedstat", encoding="ascii") as file:
                    total += int(file.read().split()[0])
        return total / 1e9

    def end(self):
        for child in self.children:
            child.send_signal(signal.SIGKILL)
            child.wait()


def start_system(name, processes, options, keys):
    """Starts what carries the stream; where the sender connects to, and its protocol."""
    carriers = {"vmcc over QUIC": "udp", "vmcc over TCP carriers": "tcp"}
    if name in carriers:
        proxy = ("proxy", "--carrier", carriers[name])
        listen = ("--listen", "0.0.0.0:4433", "--keys", keys["there"][0], "--peer", keys["here"][1])
        processes.start("there", options.vmcc, *proxy, *listen)
        forward = ("--forward", f"127.0.0.1:{FORWARDED}=127.0.0.1:{PORT}")
        peer = ("--keys", keys["here"][0], "--peer", keys["there"][1])
        processes.start("here", options.vmcc, *proxy, *forward, *peer, "10.80.0.2:4433")
        return "127.0.0.1", FORWARDED, 0
    if name == "aggligator":
        processes.start("there", options.agg_tunnel, "server", "-n", "--tcp", "5800", "-p", str(PORT))
        links = ("--tcp", "10.80.0.2", "--tcp", "10.80.1.2")
        processes.start("here", options.agg_tunnel, "client", "-4", "-n", "-p", f"{PORT}:{FORWARDED}", *links)
        return "127.0.0.1", FORWARDED, 0
    return "10.80.0.2", PORT, IPPROTO_MPTCP if name == "MPTCP" else 0


def samples(file):
    """Times and bytes of a sink's whole lines."""
    with open(file, encoding="ascii") as lines:
        text = lines.read()
    whole = text[: text.rfind("\n") + 1]
    return [(float(at), int(count)) for at, count in (line.split() for line in whole.splitlines())]


def wire_bytes():
    """Bytes that have left all token buckets, those of Ethernet headers included."""
    total = 0
    for host in HOSTS:
        for path in (0, 1):
            total += json.loads(run(f"tc -s -j -n {host} qdisc show dev p{path} root"))[0]["bytes"]
    return total


def wait_for_data(file):
    end = time.monotonic() + START_TIMEOUT_S
    while not samples(file):
        if time.monotonic() > end:
            sys.exit("two_paths: no byte arrives")
        time.sleep(0.05)


def measure(processes, arrivals):
    """Goodput, CPU time and overhead in the same seconds, then the stall after a cut."""
    wait_for_data(arrivals)
    time.sleep(WARMUP_S)
    begin, before, wire = time.monotonic(), cpu_times(processes), wire_bytes()
    time.sleep(MEASURE_S)
    end, after, wire = time.monotonic(), cpu_times(processes), wire_bytes() - wire
    set_cut("A")
    cut = time.monotonic()
    time.sleep(CUT_S)
    all_samples = samples(arrivals)
    payload = bytes_between(all_samples, begin, end)
    times = [cut, *(at for at, _ in all_samples if at > cut), time.monotonic()]
    stall = max(after - before for before, after in zip(times, times[1:]))
    return {
        "goodput": payload * 8e-6 / (end - begin),
        "stall": stall,
        "tunnel": (after[0] - before[0]) / payload * 1e9,
        "ends": (after[1] - before[1]) / payload * 1e9,
        "overhead": wire / payload - 1,
    }


def cpu_times(processes):
    """CPU time of the programs between sender and sink, and of these two, which were started last and first."""
    return processes.cpu_s(1, -1), processes.cpu_s(0, 1) + processes.cpu_s(-1, None)


def bytes_between(all_samples, begin, end):
    inside = [count for at, count in all_samples if begin <= at <= end]
    return inside[-1] - inside[0] if inside else 0


def one_run(name, options, keys):
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(folder)
        try:
            proto = IPPROTO_MPTCP if name == "MPTCP" else 0
            arrivals = processes.start("there", sys.executable, "-u", __file__, "sink", str(proto))
            address, port, proto = start_system(name, processes, options, keys)
            processes.start("here", sys.executable, __file__, "send", address, str(port), str(proto))
            return measure(processes, arrivals)
        finally:
            processes.end()
            with contextlib.suppress(subprocess.CalledProcessError):
                set_cut("D")


def make_keys(vmcc, folder):
    """Folder and fingerprint of each host's keys."""
    keys = {}
    for host in HOSTS:
        own = os.path.join(folder, host)
        printed = run(f"{vmcc} keys --keys {own}")
        keys[host] = (own, printed.split()[0])
    return keys


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def table(rows):
    print("| | goodput, Mbit/s | stall after the cut, s | CPU s per GB between the ends | CPU s per GB of the ends | overhead, % |")
    print("|---|---|---|---|---|---|")
    for name, runs in rows.items():
        column = {key: [run[key] for run in runs] for key in runs[0]}
        stall = spread(column["stall"], 2)
        if min(column["stall"]) > 0.98 * CUT_S:
            stall = "nothing arrives"
        overhead = spread([100 * value for value in column["overhead"]], 2)
        tunnel = spread(column["tunnel"], 1) if max(column["tunnel"]) > 0 else "none"
        print(f"| {name} | {spread(column['goodput'], 2)} | {stall} | {tunnel} | {spread(column['ends'], 1)} | {overhead} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vmcc", required=True)
    parser.add_argument("--agg-tunnel")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--lock", default=os.devnull)
    options = parser.parse_args()
    names = ["TCP", "MPTCP", "vmcc over QUIC", "vmcc over TCP carriers"]
    names += ["aggligator"] if options.agg_tunnel else []
    rows, loads = {name: [] for name in names}, []
    make_network()
    with tempfile.TemporaryDirectory() as folder, open(options.lock, "a", encoding="ascii") as lock:
        keys = make_keys(options.vmcc, folder)
        for _ in range(options.runs):
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in names:
                rows[name].append(one_run(name, options, keys))
                print(name, rows[name][-1], file=sys.stderr, flush=True)
            loads.append(os.getloadavg()[0])
            fcntl.flock(lock, fcntl.LOCK_UN)
    load = f"{min(loads):.1f} to {max(loads):.1f}"
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {load}, {options.runs} runs.\n")
    table(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        send(*sys.argv[2:])
    elif sys.argv[1:2] == ["sink"]:
        sink(*sys.argv[2:])
    elif sys.argv[-1] == "inside":
        sys.argv.pop()
        main()
    else:
        os.execvp("unshare", ["unshare", "--mount", "sh", "-c", PRIVATE, "sh", sys.executable, *sys.argv, "inside"])
