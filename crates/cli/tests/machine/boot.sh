#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# This host's files with a layer of their own, and systemd as process 1. For crates/cli/tests/machine; in namespaces of its own.
#   boot.sh FOLDER
set -e
cd "$1"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root
cd root
# As systemd does where it is no container: services see what is mounted later, as names of network namespaces are.
mount --make-rshared .
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t bpf none sys/fs/bpf
mount -t tmpfs none run
mount -t tmpfs none tmp
mount --rbind /dev dev
mkdir run/lock
# Services may be started here, and none but those that the test installs are.
rm -f usr/sbin/policy-rc.d
rm -rf etc/systemd/system/*.wants
printf '[Unit]\nDefaultDependencies=no\nAllowIsolate=yes\n' >etc/systemd/system/test.target
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	chroot . /lib/systemd/systemd --system --unit=test.target --log-target=null --show-status=0
