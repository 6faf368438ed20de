#!/usr/bin/env bash
# Runs every fuzz target of the module for $FUZZTIME (default 20s), one after the other: `go test -fuzz` takes one target.
set -euo pipefail
cd "$(dirname "$0")/.."

found=0
while IFS=: read -r file target; do
	found=1
	echo "== $target in $(dirname "$file")"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" "./$(dirname "$file")"
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' api cmd internal test 2>/dev/null | sed 's/func //' | sort)
if [ "$found" = 0 ]; then
	echo "fuzz: no fuzz target was found" >&2
	exit 1
fi
