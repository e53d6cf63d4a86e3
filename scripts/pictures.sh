#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Draws docs/pictures/*.svg from the *.dot files beside them (Graphviz), for light and dark pages.
#
#   scripts/pictures.sh            draws all
#   scripts/pictures.sh --check    fails if a drawing's text is not that of its source
#
# Exit codes: 0 done, 1 a picture is stale, 2 wrong use, 3 no Graphviz.

set -euo pipefail
cd "$(dirname "$0")/../docs/pictures"

# Both themes by one style sheet; Graphviz's own colours go.
style='<style>text{fill:#1d2530}path,polygon,ellipse{stroke:#5c6773}path,polygon{fill:none}.edge polygon{fill:#5c6773}.node path,.node polygon{fill:#eef3fa}.cluster path,.cluster polygon{fill:none;stroke:#c5ccd4}@media (prefers-color-scheme:dark){text{fill:#e6e9ed}path,polygon,ellipse{stroke:#9aa5b1}.edge polygon{fill:#9aa5b1}.node path,.node polygon{fill:#242b33}.cluster path,.cluster polygon{stroke:#3c4650}}</style>'

draw() { # draw NAME: prints the SVG
	dot -Tsvg -Gfontname=sans-serif -Nfontname=sans-serif -Efontname=sans-serif -Gfontsize=13 -Nfontsize=11 -Efontsize=10 \
		-Nshape=box -Nstyle=rounded -Gbgcolor=transparent -Gstyle=rounded "$1.dot" |
		sed -n '/^<svg/,$p' | sed -E -e '/^<!--/d' -e 's/ (fill|stroke)="[^"]*"//g' -e "s|^<g id=\"graph0\"|$style&|"
}

# Letters only: positions differ between versions of Graphviz.
words() { grep -o '<text[^>]*>[^<]*' "$1" | sed 's/<[^>]*>//' | sort; }

case ${1:-} in
'' | --check) ;;
*)
	sed -n '4,/^$/s/^# \{0,1\}//p' "../../scripts/pictures.sh" >&2
	exit 2
	;;
esac
command -v dot >/dev/null || {
	echo "pictures: no Graphviz here; run: apt-get install graphviz" >&2
	exit 3
}
status=0
for source in *.dot; do
	name=${source%.dot}
	draw "$name" >"$name.new"
	if [ "${1:-}" != --check ]; then
		mv "$name.new" "$name.svg"
	else
		cmp -s <(words "$name.new") <(words "$name.svg") || {
			echo "pictures: $name.svg is not drawn from $source; run: scripts/pictures.sh" >&2
			status=1
		}
		rm "$name.new"
	fi
done
exit $status
