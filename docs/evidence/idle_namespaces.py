#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""CPU time of a guard beside one idle MPTCP connection in each of N network namespaces.

    sudo docs/evidence/idle_namespaces.py VMCC N SECONDS

Runs in mounts of its own: the namespaces and the guard's records vanish with it.
"""
import ctypes
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from fcntl import ioctl

CLONE_NEWNET, MS_BIND, SIOCSIFFLAGS, IFF_UP, TCP_CONGESTION, IPPROTO_MPTCP = 0x40000000, 4096, 0x8914, 1, 13, 262
ALGORITHM = "lia"
PRIVATE = "mount -t tmpfs -o mode=755 none /run && mount -t bpf none /sys/fs/bpf && ulimit -n 16384 && exec \"$@\""
libc = ctypes.CDLL(None, use_errno=True)


def connect_in_new_namespace(name, held):
    """One MPTCP connection over loopback, on which a byte was sent."""
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    path = f"/run/netns/{name}"
    open(path, "w", encoding="ascii").close()
    if libc.mount(b"/proc/thread-self/ns/net", path.encode(), None, MS_BIND, None):
        raise OSError(ctypes.get_errno(), "mount")
    with socket.socket() as any_socket:
        ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as listener:
        listener.bind(("127.0.0.1", 5000))
        listener.listen()
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
        client.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, f"mp_{ALGORITHM}".encode())
        client.connect(("127.0.0.1", 5000))
        server, _ = listener.accept()
    client.send(b"x")
    server.recv(1)
    held.append((client, server))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_rest(pid):
    """The guard visits every namespace once; after that, an idle one costs a lookup."""
    calm = 0
    while calm < 3:
        before = cpu_seconds(pid)
        time.sleep(5)
        calm = calm + 1 if 0 < cpu_seconds(pid) - before < 0.1 else 0


def main(vmcc, count, seconds):
    os.makedirs("/run/netns")
    subprocess.run([vmcc, "up", ALGORITHM], check=True, capture_output=True)
    held = []
    for number in range(count):
        thread = threading.Thread(target=connect_in_new_namespace, args=(f"idle{number}", held))
        thread.start()
        thread.join()
    command = [vmcc, "up", ALGORITHM, "--guard", "--close-failed"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as guard:
        wait_for_rest(guard.pid)
        before, began = cpu_seconds(guard.pid), time.monotonic()
        time.sleep(seconds)
        share = (cpu_seconds(guard.pid) - before) / (time.monotonic() - began)
        guard.terminate()
    print(f"{len(held)} namespaces: guard {share * 100:.2f} % of a core")
    subprocess.run([vmcc, "down"], check=True, capture_output=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        inside = ["unshare", "--mount", "sh", "-c", PRIVATE, "sh", sys.executable, *sys.argv, "inside"]
        os.execvp("unshare", inside)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
