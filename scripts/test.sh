#!/usr/bin/env bash
# scripts/test.sh FLAGS -- PACKAGES: `go test` of everything, where up to three packages that failed are run once more, each by itself: docs/adr/0032. A data race,
# a panic and what does not compile are never run again. What passed only then is named at the end, and wants mending.
set -euo pipefail

most=3
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

flags=()
while [ "$1" != -- ]; do
	flags+=("$1")
	shift
done
shift
status=0
"${GO:-go}" test "${flags[@]}" "$@" 2>&1 | tee "$log" || status=$?
[ "$status" = 0 ] && exit 0

# A race or a panic is a finding, however seldom it shows. A test's time-out is a panic too, of a machine that was too slow, perhaps.
if grep -Eq '^WARNING: DATA RACE|^fatal error: |\[(build|setup) failed\]' "$log" || grep -E '^panic: ' "$log" | grep -qv '^panic: test timed out'; then
	echo "test: a race, a panic or a build that fails: not run again" >&2
	exit "$status"
fi
mapfile -t failed < <(awk -F '\t' '$1 == "FAIL" && NF > 1 { print $2 }' "$log" | sort -u)
if [ "${#failed[@]}" = 0 ] || [ "${#failed[@]}" -gt "$most" ]; then
	echo "test: ${#failed[@]} packages failed: not run again" >&2
	exit "$status"
fi

echo "== ${#failed[@]} of the packages failed: once more, by itself: ${failed[*]}"
"${GO:-go}" test "${flags[@]}" -p 1 -count 1 "${failed[@]}"
echo "== FLAKY: failed among others, passed alone:"
grep -E '^ *--- FAIL: ' "$log" | sed 's/^ *--- FAIL: /   /'
printf '   in %s\n' "${failed[@]}"
