#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Installs what vmcc needs on Debian and Ubuntu, and nothing twice: a run that finds everything in
# place changes nothing and takes a second. On other systems it names the packages and stops.
#
#   scripts/setup.sh [GROUP...]       default: demo
#
#   build   C compiler, clang, libelf, a Rust toolchain
#   run     the programs that the lab runs
#   demo    build and run; guest too, if this host cannot run the kernel engine itself
#   guest   QEMU and the kernels of `make kernels` (KERNELS="6.1 7" chooses among the series)
#   deb     what `make deb` packs with
#   apps    applications that workloads run: Redis, PostgreSQL, sshd, FTP (some install a service)
#   clusters  Slurm and Ray, for tests of sweeps on several machines (installs services)
#   docs    the generator of the documents' site (in target)
#   test    deb, docs, clang-format, shellcheck, Python libraries that open result files, Prometheus (in target)
#
# Exit codes: 0 done, 2 wrong use, 3 this host cannot be set up (with the remedy).

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
os_release=${VMCC_OS_RELEASE:-/etc/os-release} # tests point this elsewhere

say() { printf 'setup: %s\n' "$*"; }
stop() {
	printf 'setup: %s\n' "$*" >&2
	exit 3
}

usage() {
	sed -n '4,/^$/s/^# \{0,1\}//p' "$0"
	exit "${1:-0}"
}

# --- what to set up ---------------------------------------------------------------------------

host_runs_kernel_engine() {
	[ "$(id -u)" = 0 ] && [ -e /sys/kernel/btf/vmlinux ] && [ -e /proc/sys/net/mptcp/enabled ]
}

groups=()
for word in "${@:-demo}"; do
	case $word in
	build | run | guest | deb | docs | apps | clusters) groups+=("$word") ;;
	test) groups+=(test deb docs) ;;
	demo)
		groups+=(build run)
		host_runs_kernel_engine || groups+=(guest)
		;;
	-h | --help) usage ;;
	*)
		printf 'setup: unknown group "%s"\n\n' "$word" >&2
		usage 2 >&2
		;;
	esac
done

# The packages.txt lines of the chosen groups, as "alternative|alternative".
wanted() {
	local group packages _
	while read -r group packages _; do
		case " ${groups[*]} " in *" $group "*) printf '%s\n' "$packages" ;; esac
	done < <(grep -v '^#' "$here/packages.txt") | sort -u
}

# The packages of which only the files are wanted.
unpacked() {
	case " ${groups[*]} " in *" test "*) awk '$1 == "unpack" { print $2 }' "$here/packages.txt" ;; esac
}

family() {
	local ID='' ID_LIKE=''
	# shellcheck source=/dev/null
	[ ! -r "$os_release" ] || . "$os_release"
	case " $ID $ID_LIKE " in
	*" debian "* | *" ubuntu "*) echo debian ;;
	*) echo "${ID:-unknown}" ;;
	esac
}

name_the_packages() {
	{
		echo "setup: this script installs packages on Debian and Ubuntu only; this system is \"$1\"."
		echo "Install what corresponds to these Debian packages, and Rust $(needed_rust) or newer:"
		{ wanted && unpacked; } | sed -E 's/\|-$/ (where there is one)/; s/\|/ or /g; s/^/    /'
		echo "Then run make with SETUP=: to leave this step out, for example: make build SETUP=:"
	} >&2
	exit 3
}

# --- system packages --------------------------------------------------------------------------

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		stop "needs root to run: $*. Run it as root, or install sudo."
	fi
}

apt_lists_updated=
apt_update_once() {
	[ -z "$apt_lists_updated" ] || return 0
	say "updating the package lists"
	as_root apt-get -qq update || stop "apt-get update failed: check the network and apt's sources, then run this again."
	apt_lists_updated=1
}

apt_install() {
	local log
	say "installing: $*"
	log=$(mktemp)
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
		-o Dpkg::Use-Pty=0 install "$@" >"$log" 2>&1 || {
		tail -n 20 "$log" >&2
		stop "apt-get install failed; all it said is in $log. Try: apt-get install $*"
	}
	rm -f "$log"
}

# Version that apt would install, or nothing.
candidate() {
	apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }'
}

installed_packages() {
	dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | awk '$1 == "installed" { print $2 }'
}

# Lines of which no alternative is installed. `-` counts as installed once the lists are fresh.
missing_lines() {
	local have=" $1 " line one found
	while read -r line; do
		found=
		for one in ${line//|/ }; do
			case $have in *" $one "*) found=1 ;; esac
		done
		[ -n "$found" ] || printf '%s\n' "$line"
	done < <(wanted)
}

install_packages() {
	local lines line one chosen=() pick
	lines=$(missing_lines "$(installed_packages | tr '\n' ' ')")
	# Optional lines alone are no reason to ask the network again.
	if grep -qv '|-$' <<<"$lines" && [ -n "$lines" ]; then
		apt_update_once
	fi
	for line in $lines; do
		pick=
		for one in ${line//|/ }; do
			if [ "$one" = - ] || [ -n "$(candidate "$one")" ]; then
				pick=$one
				break
			fi
		done
		[ -n "$pick" ] || stop "no package among ${line//|/, } in this machine's archive: install one of them by hand."
		[ "$pick" = - ] || chosen+=("$pick")
	done
	[ ${#chosen[@]} -eq 0 ] || apt_install "${chosen[@]}"
}

# --- Rust -------------------------------------------------------------------------------------

needed_rust() {
	sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml"
}

# at_least A B: is version A >= B?
at_least() {
	[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

have_rust() {
	local tool version
	for tool in rustc cargo; do
		version=$("$tool" --version 2>/dev/null | awk '{ print $2 }') || return 1
		[ -n "$version" ] && at_least "$version" "$(needed_rust)" || return 1
	done
	case " ${groups[*]} " in
	*" test "*) cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ;;
	esac
}

# apt_rust PACKAGE...: installs them if the first one is new enough.
apt_rust() {
	local version
	version=$(candidate "$1")
	[ -n "$version" ] && at_least "${version#*:}" "$(needed_rust)" || return 1
	apt_install "$@"
}

install_rust() {
	local versioned
	export PATH="$PATH:$HOME/.cargo/bin"
	! have_rust || return 0
	say "no Rust $(needed_rust) or newer here"
	if command -v rustup >/dev/null; then
		rustup toolchain install stable --profile minimal -c clippy,rustfmt && rustup default stable
		return
	fi
	apt_update_once
	# Debian keeps a current compiler for its browsers (-web); Ubuntu keeps numbered ones.
	apt_rust rustc-web cargo-web rustfmt-web rust-web-clippy && return
	apt_rust rustc cargo rustfmt rust-clippy && return
	versioned=$(apt-cache search --names-only '^rustc-1\.[0-9]+$' | awk '{ print $1 }' | sort -V | tail -n 1)
	if [ -n "$versioned" ] && apt_rust "$versioned" "${versioned/rustc/cargo}"; then
		local bin=/usr/lib/${versioned/rustc/rust}/bin
		[ ! -d "$bin" ] || say "add $bin to PATH, then run make again"
		return
	fi
	if [ -n "$(candidate rustup)" ]; then
		apt_install rustup
		rustup toolchain install stable --profile minimal -c clippy,rustfmt && rustup default stable
		return
	fi
	stop "no Rust $(needed_rust) in this machine's archive: install it with rustup (https://rustup.rs), then run this again."
}

# --- Python libraries -------------------------------------------------------------------------

# install_python NAME FILE: what the file lists, into target/NAME.
install_python() {
	local venv=$root/target/$1 wanted="$here/$2"
	! cmp -s "$wanted" "$venv/installed.txt" || return 0
	say "installing into target/$1: $(grep -v '^#' "$wanted" | tr '\n' ' ')"
	python3 -m venv "$venv"
	"$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$wanted" ||
		stop "pip install failed: check the network and pip's index, then run this again."
	cp "$wanted" "$venv/installed.txt"
}

# --- tools that are not to be installed ---------------------------------------------------------

unpack_tools() {
	local tree=$root/target/tools package work
	for package in $(unpacked); do
		[ ! -e "$tree/$package.unpacked" ] || continue
		[ -n "$(candidate "$package")" ] || apt_update_once
		say "unpacking into target/tools: $package"
		work=$(mktemp -d)
		(cd "$work" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package") ||
			stop "$package cannot be fetched: check the network and apt's sources, then run this again."
		mkdir -p "$tree"
		dpkg-deb -x "$work"/*.deb "$tree"
		rm -rf "$work"
		touch "$tree/$package.unpacked"
	done
}

# ----------------------------------------------------------------------------------------------

system=$(family)
[ "$system" = debian ] || name_the_packages "$system"
command -v apt-get >/dev/null || name_the_packages "$system without apt-get"
install_packages
for group in "${groups[@]}"; do
	case $group in
	build) install_rust ;;
	guest)
		read -ra series <<<"${KERNELS:-}"
		"$here/fetch-kernels.sh" "${series[@]}"
		;;
	docs) install_python site-python site-requirements.txt ;;
	test)
		install_python python python-requirements.txt
		unpack_tools
		;;
	clusters)
		install_python python python-requirements.txt
		"$root/target/python/bin/python" -m pip install -q --disable-pip-version-check ray ||
			stop "pip install ray failed: check the network and pip's index, then run this again."
		;;
	esac
done
say "ready: ${groups[*]}"
