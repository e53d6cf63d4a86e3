#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=dash
#
# First process of a vmcc guest. fetch-kernels.sh packs it, with a static busybox and the few modules
# that a distribution kernel needs before it can reach its root, into the guest's initramfs.
#
# The host's root file system arrives through virtiofs (tag "vmcc"); the host itself refuses writes
# to it. The kernel command line names the job, vmcc.job=DIR, a directory of the host with two files:
#   init   the script that takes over
#   share  optional: name of the one directory of the host that the guest may write

PATH=/bin
busybox mkdir -p /proc /sys /dev /host /over /root
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev

fail() {
	busybox echo "vmcc-guest: $*" >/dev/console
	busybox echo o >/proc/sysrq-trigger
	busybox sleep 60
}

# Lays a tmpfs over directory $1 of the host as directory $2: writes stay in the guest.
overlay() {
	upper=/over/$(busybox echo "$1" | busybox tr / _)
	busybox mkdir -p "$upper/up" "$upper/work"
	busybox mount -t overlay -o "nosuid,lowerdir=$1,upperdir=$upper/up,workdir=$upper/work" overlay "$2"
}

# Dependency order, fixed when the initramfs was made.
while read -r module; do
	busybox insmod "/modules/$module" || fail "module $module does not load"
done </modules/order

job=''
read -r cmdline </proc/cmdline
for word in $cmdline; do
	case $word in
	vmcc.job=*) job=${word#vmcc.job=} ;;
	esac
done
[ -n "$job" ] || fail "no vmcc.job= on the kernel command line"

# Where the host serves its files without being root, mount(8) and others would be set-user-ID of the
# wrong user. Everything runs as root here anyway.
busybox mount -t virtiofs -o nosuid vmcc /host || fail "the host's file system does not mount"
busybox mount -t tmpfs -o mode=0755 over /over || fail "no tmpfs"
overlay /host /root || fail "no overlay"

# An overlay opens files with O_NOATIME, which only a file's owner or root may do. Where the host
# serves its files without being root, only the directories meant for writing get an overlay.
if ! busybox cat /root/bin/sh >/dev/null 2>&1; then
	busybox umount /root
	busybox mount -o bind /host /root
	for dir in tmp var/tmp; do
		overlay "/host/$dir" "/root/$dir" || fail "no overlay on /$dir"
	done
	busybox mount -t tmpfs home /root/root
fi

if [ -s "/host$job/share" ]; then
	IFS= read -r share <"/host$job/share"
	busybox mount -o bind "/host$share" "/root$share" || fail "$share is not there to be shared"
fi

busybox mount -o move /proc /root/proc
busybox mount -o move /sys /root/sys
busybox mount -o move /dev /root/dev
exec busybox switch_root /root /bin/sh "$job/init"
