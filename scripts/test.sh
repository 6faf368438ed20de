#!/usr/bin/env bash
# scripts/test.sh FLAGS -- PACKAGES: `go test` of everything, TEST_P packages at once. Records where the time goes (`make test-times` prints it again), and links each
# program that several packages run once. Up to three packages that failed are run once more, each by itself: docs/adr/0032. A data race, a panic
# and what does not compile are never run again. Packages that passed only then are named at the end, under FLAKY: each is a defect to fix.
set -euo pipefail

# All packages share one PostgreSQL server, where each test has a database of its own.
if [ -z "${BULLPEN_TEST_DATABASE_URL:-}${BULLPEN_DATABASE_URL:-}" ]; then
	mkdir -p bin
	CGO_ENABLED=0 "${GO:-go}" build -trimpath -o bin/testpostgres ./scripts/testpostgres
	exec bin/testpostgres "$0" "$@"
fi

most=3
log="$(mktemp)"
# The programs that tests compile, shared by their packages for this run (test/kit/gobuild).
export BULLPEN_TEST_PROGRAMS="$(mktemp -d)"
trap 'rm -rf "$log" "$log.plain" "$BULLPEN_TEST_PROGRAMS"; kill %% 2>/dev/null || true' EXIT

flags=()
while [ "$1" != -- ]; do
	flags+=("$1")
	shift
done
shift
go="${GO:-go}"
CGO_ENABLED=0 "$go" build -trimpath -o bin/testtimes ./scripts/testtimes
rm -f bin/test-times.jsonl bin/test-graph*.json

# RACE run with the race detector, one at a time, beside the others. Empty: all of them do.
mapfile -t all < <("$go" list "$@")
raced=("${all[@]}") plain=() at_once=${TEST_P:-3}
if [ -n "${RACE:-}" ]; then
	mapfile -t raced < <("$go" list $(printf './%s ' $RACE))
	mapfile -t plain < <(printf '%s\n' "${all[@]}" | grep -vxFf <(printf '%s\n' "${raced[@]}"))
	at_once=1
fi
times=(-exec "'$PWD/bin/testtimes' record '$PWD/bin/test-times.jsonl'")

([ "${#plain[@]}" = 0 ] || CGO_ENABLED=0 "$go" test "${flags[@]}" -p "$((${TEST_P:-3} - 1))" "${times[@]}" -debug-actiongraph bin/test-graph-plain.json "${plain[@]}" >"$log.plain" 2>&1) &
beside=$!
status=0
"$go" test -race "${flags[@]}" -p "$at_once" "${times[@]}" -debug-actiongraph bin/test-graph.json "${raced[@]}" 2>&1 | tee "$log" || status=$?
wait "$beside" || status=$?
echo "== without the race detector:"
tee -a "$log" <"$log.plain"
echo
bin/testtimes table bin/test-times.jsonl bin/test-graph.json bin/test-graph-plain.json || true # no table of a run that compiled nothing
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
for package in "${failed[@]}"; do
	if printf '%s\n' "${plain[@]}" | grep -qxF "$package"; then
		CGO_ENABLED=0 "$go" test "${flags[@]}" -count 1 "$package"
	else
		"$go" test -race "${flags[@]}" -count 1 "$package"
	fi
done
echo "== FLAKY: failed among others, passed alone:"
grep -E '^ *--- FAIL: ' "$log" | sed 's/^ *--- FAIL: /   /'
printf '   in %s\n' "${failed[@]}"
