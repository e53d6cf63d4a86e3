# shellcheck shell=sh disable=SC2154
# Included into the job's script by job.rs, which sets `module_root` before and defines `run` after it.

mount -t tmpfs -o mode=0755 run /run
mkdir -p /run/lock /run/netns /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup

# Modules live beside the kernel, not in /lib/modules: both callers of modprobe, programs and the
# kernel itself, must be told. The link keeps spaces out of MODPROBE_OPTIONS.
ln -s "$module_root" /run/vmcc-modules
export MODPROBE_OPTIONS="-d /run/vmcc-modules"
printf '#!/bin/sh\nexec /sbin/modprobe -d /run/vmcc-modules "$@"\n' >/run/vmcc-modprobe
chmod 0755 /run/vmcc-modprobe
echo /run/vmcc-modprobe >/proc/sys/kernel/modprobe

ip link set lo up
hostname vmcc-guest

port() {
	for candidate in /sys/class/virtio-ports/*; do
		read -r name <"$candidate/name"
		[ "$name" != "vmcc.$1" ] || echo "/dev/${candidate##*/}"
	done
}

finish() {
	control=$(port control)
	echo ready >"$control"
	(run) </dev/null >"$(port stdout)" 2>"$(port stderr)"
	echo "exit $?" >"$control"
	# QEMU runs with -no-reboot, so this ends it.
	echo b >/proc/sysrq-trigger
	sleep 60
}

