#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Fetches Debian's cloud kernels for guests and prepares each for booting. Nothing is installed:
# apt runs with sources, lists and cache of its own, from the mirror that this machine already
# uses, and the packages are only unpacked.
#
#   scripts/fetch-kernels.sh [--update] [SERIES...]     default: 6.1 6.12 6.18 7 newest
#   scripts/fetch-kernels.sh --newest                   prints the newest release that Debian has
#
# A series is what a release starts with; the newest release of it is taken. `newest` is the newest
# release of all series. A series that is there already is left alone unless --update asks for a
# newer release; `newest` is always looked for. Result, per release:
#
#   $VMCC_KERNELS/RELEASE/{vmlinuz,initrd,config,lib/modules/RELEASE}
#
# The suites are bookworm, trixie, trixie-backports and sid; VMCC_SUITES names others, for a mirror
# that lacks one. VMCC_KERNELS is by default /var/cache/vmcc/kernels for root, else ~/.cache/vmcc/kernels.

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'kernels: %s\n' "$*"; }
stop() {
	printf 'kernels: %s\n' "$*" >&2
	exit 3
}

update=
only_newest=
series=()
for word in "$@"; do
	case $word in
	--update) update=1 ;;
	--newest) only_newest=1 ;;
	newest | [0-9]*) series+=("$word") ;;
	*)
		sed -n '4,/^$/s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
	esac
done
[ ${#series[@]} -gt 0 ] || series=(6.1 6.12 6.18 7 newest)

if [ -n "${VMCC_KERNELS:-}" ]; then
	store=$VMCC_KERNELS
elif [ "$(id -u)" = 0 ]; then
	store=/var/cache/vmcc/kernels
else
	store=${XDG_CACHE_HOME:-$HOME/.cache}/vmcc/kernels
fi
mkdir -p "$store"

# The newest prepared release of a series, or nothing. The initramfs is written last.
prepared() {
	local dir prefix=$1.
	[ "$1" != newest ] || prefix=
	for dir in "$store/$prefix"[0-9]*; do
		[ ! -e "$dir/initrd" ] || basename "$dir"
	done | sort -V | tail -n 1
}

# The modules of a release that must be loaded before its root is reachable, in order.
early_modules() {
	local dir=$1 release=$2 module
	for module in virtio_pci virtio_console virtiofs overlay; do
		modprobe -d "$dir" -S "$release" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++'
}

make_initrd() {
	local dir=$1 release=$2 tree=$work/initrd file name
	rm -rf "$tree"
	mkdir -p "$tree/bin" "$tree/modules"
	cp "$(command -v busybox)" "$tree/bin/busybox"
	install -m 0755 "$here/guest-init.sh" "$tree/init"
	: >"$tree/modules/order"
	while read -r file; do
		name=$(basename "$file")
		case $name in
		*.xz)
			name=${name%.xz}
			xz -dc "$file" >"$tree/modules/$name"
			;;
		*) cp "$file" "$tree/modules/" ;;
		esac
		echo "$name" >>"$tree/modules/order"
	done < <(early_modules "$dir" "$release")
	cp "$here/guest-init.sh" "$dir/initrd.source"
	(cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$dir/initrd.part"
	chmod a+r "$dir/initrd.source" "$dir/initrd.part"
	mv "$dir/initrd.part" "$dir/initrd"
}

[ -n "$only_newest" ] || for tool in busybox modprobe depmod xz; do
	command -v "$tool" >/dev/null || stop "$tool is missing: run make setup-guest."
done
work=$(mktemp -d "$store/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

todo=()
[ -n "$only_newest" ] || for one in "${series[@]}"; do
	have=$(prepared "$one")
	if [ -n "$have" ] && [ -z "$update" ] && [ "$one" != newest ]; then
		# The kernel stays, its initramfs follows this checkout.
		cmp -s "$here/guest-init.sh" "$store/$have/initrd.source" || make_initrd "$store/$have" "$have"
		say "$one: $have is there"
	else
		todo+=("$one")
	fi
done
[ ${#todo[@]} -gt 0 ] || [ -n "$only_newest" ] || exit 0

arch=$(dpkg --print-architecture)
[ "$arch" = amd64 ] || stop "guests need amd64 kernels; this machine is $arch."

# --- an apt of our own ------------------------------------------------------------------------

# The mirror of this machine that carries Debian. Ubuntu's carries Ubuntu only; its users name a
# Debian mirror themselves.
mirror() {
	if [ -n "${DEBIAN_MIRROR:-}" ]; then
		echo "$DEBIAN_MIRROR"
	else
		# apt replaces the $(...), not the shell.
		# shellcheck disable=SC2016
		apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE)' 'Identifier: Packages' |
			awk '$1 == "Debian" && $3 !~ /-/ { print $2; exit }'
	fi
}

uri=$(mirror)
[ -n "$uri" ] || stop "no Debian mirror in apt's sources: run this again with DEBIAN_MIRROR=<URL of a mirror of Debian's archive>."
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || stop "$keyring is missing: apt-get install debian-archive-keyring."

apt=$work/apt
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/empty"
read -ra suites <<<"${VMCC_SUITES:-bookworm trixie trixie-backports sid}"
for suite in "${suites[@]}"; do
	echo "deb [arch=amd64 signed-by=$keyring] $uri $suite main"
done >"$apt/sources.list"
# On top of the machine's own settings, so that its proxies and certificates stay in force.
cat >"$apt/apt.conf" <<CONF
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "$apt/empty";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "$apt/empty";
Dir::State "$apt/state";
Dir::State::status "/dev/null";
Dir::Cache "$apt/cache";
Acquire::Languages "none";
APT::Sandbox::User "";
CONF
export APT_CONFIG=$apt/apt.conf
say "reading the package lists of ${suites[*]}" >&2
apt-get -qq update || stop "the mirror's package lists cannot be read: check the network, the mirror in apt's sources, and \
whether it has these suites (VMCC_SUITES)."

# Every package that belongs to a cloud kernel, one name a line. Debian split the image in 7.0:
# what was linux-image is now linux-binary (signed or not), linux-modules and linux-base.
apt-cache pkgnames | grep -E '^linux-(image|binary|binary-unsigned|modules|base)-[0-9].*-cloud-amd64$' |
	grep -v -- '-dbg' >"$work/names" ||
	stop "the mirror has no cloud kernel in ${suites[*]}: check the mirror in apt's sources (DEBIAN_MIRROR) and the suites (VMCC_SUITES)."

newest_release() {
	local prefix="$1\."
	[ "$1" != newest ] || prefix='[0-9]'
	# Without release candidates.
	sed -nE "s/^linux-(image|binary|binary-unsigned)-($prefix.*)/\2/p" "$work/names" | { grep -v -- '-rc' || true; } |
		sort -uV | tail -n 1
}

if [ -n "$only_newest" ]; then
	newest_release newest
	exit 0
fi

# --- fetch and prepare ------------------------------------------------------------------------

# The first existing file among the arguments.
first_of() {
	local file
	for file in "$@"; do
		[ ! -e "$file" ] || { echo "$file" && return; }
	done
	return 1
}

prepare() {
	local release=$1 tree=$work/unpacked dir=$work/ready deb modules
	rm -rf "$tree" "$dir" "$work"/*.deb
	mkdir -p "$tree" "$dir/lib"
	mapfile -t packages < <(grep -E -- "-${release//+/\\+}\$" "$work/names" | {
		# A signed image makes the unsigned one superfluous.
		grep -v -- '-unsigned-' || true
	})
	if ! printf '%s\n' "${packages[@]}" | grep -qE '^linux-(image|binary)-'; then
		packages+=("linux-binary-unsigned-$release")
	fi
	(cd "$work" && apt-get -qq download "${packages[@]}") || stop "$release: the packages cannot be fetched."
	for deb in "$work"/*.deb; do dpkg-deb -x "$deb" "$tree"; done
	modules=$(first_of "$tree/usr/lib/modules/$release" "$tree/lib/modules/$release") ||
		stop "$release: the packages hold no modules."
	mkdir -p "$dir/lib/modules"
	mv "$modules" "$dir/lib/modules/"
	modules=$dir/lib/modules/$release
	cp "$(first_of "$tree/boot/vmlinuz-$release" "$modules/vmlinuz" "$modules/vmlinuz.unsigned")" "$dir/vmlinuz"
	cp "$(first_of "$tree/boot/config-$release" "$modules/config")" "$dir/config"
	rm -f "$modules"/vmlinuz* "$modules/System.map"
	depmod -b "$dir" "$release"
	make_initrd "$dir" "$release"
	chmod -R a+rX "$dir"
	rm -rf "${store:?}/$release"
	mv "$dir" "$store/$release"
}

for one in "${todo[@]}"; do
	release=$(newest_release "$one")
	[ -n "$release" ] || stop "no kernel $one in the mirror's ${suites[*]}."
	if [ "$release" = "$(prepared "$one")" ]; then
		say "$one: $release is the newest"
		continue
	fi
	say "$one: fetching $release"
	prepare "$release"
done
