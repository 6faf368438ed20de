#!/usr/bin/env bash
# scripts/test.sh FLAGS -- PACKAGES: `go test` of everything. Records where the time goes (`make test-times` prints it again), and links each
# program that several packages run once. Up to three packages that failed are run once more, each by itself: docs/adr/0032. A data race, a panic
# and what does not compile are never run again. Packages that passed only then are named at the end, under FLAKY: each is a defect to fix.
set -euo pipefail

most=3
log="$(mktemp)"
# The programs that tests compile, shared by their packages for this run (test/kit/gobuild).
export BULLPEN_TEST_PROGRAMS="$(mktemp -d)"
trap 'rm -rf "$log" "$BULLPEN_TEST_PROGRAMS"' EXIT

flags=()
while [ "$1" != -- ]; do
	flags+=("$1")
	shift
done
shift
go="${GO:-go}"
mkdir -p bin
CGO_ENABLED=0 "$go" build -trimpath -o bin/testtimes ./scripts/testtimes
rm -f bin/test-times.jsonl bin/test-graph.json

status=0
"$go" test "${flags[@]}" -exec "'$PWD/bin/testtimes' record '$PWD/bin/test-times.jsonl'" -debug-actiongraph bin/test-graph.json "$@" 2>&1 | tee "$log" || status=$?
echo
bin/testtimes table bin/test-times.jsonl bin/test-graph.json || true # no table of a run that compiled nothing
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
"$go" test "${flags[@]}" -p 1 -count 1 "${failed[@]}"
echo "== FLAKY: failed among others, passed alone:"
grep -E '^ *--- FAIL: ' "$log" | sed 's/^ *--- FAIL: /   /'
printf '   in %s\n' "${failed[@]}"
