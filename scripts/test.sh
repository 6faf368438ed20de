#!/usr/bin/env bash
# scripts/test.sh FLAGS -- PACKAGES: `go test` of everything, TEST_P packages at once. Records where the time goes (`make test-times` prints it again), and links each
# program that several packages run once. Up to three packages that failed are run once more, one at a time: docs/adr/0032. A data race, a panic
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

# RACE run with the race detector, one at a time. Empty: all of them do. Without it run the others: after these those of test, internal/server,
# internal/jobcontainer, internal/cli and internal/dev that no argument names, and the rest beside them. On two cores the two then end at about the same time.
mapfile -t all < <("$go" list "$@")
raced=("${all[@]}") after=() beside=() at_once=${TEST_P:-3}
if [ -n "${RACE:-}" ]; then
	at_once=1
	mapfile -t raced < <("$go" list $(printf './%s ' $RACE))
	mapfile -t named < <("$go" list $(printf '%s\n' "$@" | grep -v '\.\.\.$'))
	mapfile -t others < <(printf '%s\n' "${all[@]}" | grep -vxFf <(printf '%s\n' "${raced[@]}"))
	mapfile -t after < <(printf '%s\n' "${others[@]}" | grep -E '^[^/]+/[^/]+/[^/]+/(test|internal/server|internal/jobcontainer|internal/cli|internal/dev)/' | grep -vxFf <(printf '%s\n' "${named[@]}"))
	mapfile -t beside < <(printf '%s\n' "${others[@]}" | grep -vxFf <(printf '%s\n' "${after[@]}"))
fi
times=(-exec "'$PWD/bin/testtimes' record '$PWD/bin/test-times.jsonl'")

# plain NAME P PACKAGES: tests packages without the race detector.
plain() {
	[ "$#" -gt 2 ] || return 0
	CGO_ENABLED=0 "$go" test "${flags[@]}" -p "$2" "${times[@]}" -debug-actiongraph "bin/test-graph-$1.json" "${@:3}" 2>&1
}

plain beside "$((${TEST_P:-3} - 1))" "${beside[@]}" >"$log.plain" &
other=$!
status=0
"$go" test -race "${flags[@]}" -p "$at_once" "${times[@]}" -debug-actiongraph bin/test-graph.json "${raced[@]}" 2>&1 | tee "$log" || status=$?
plain after 1 "${after[@]}" | tee -a "$log" || status=$?
wait "$other" || status=$?
echo "== those beside them:"
tee -a "$log" <"$log.plain"
echo
bin/testtimes table bin/test-times.jsonl bin/test-graph*.json || true # no table of a run that compiled nothing
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

echo "== ${#failed[@]} of the packages failed: once more, one at a time: ${failed[*]}"
for package in "${failed[@]}"; do
	if printf '%s\n' "${raced[@]}" | grep -qxF "$package"; then
		"$go" test -race "${flags[@]}" -count 1 "$package"
	else
		CGO_ENABLED=0 "$go" test "${flags[@]}" -count 1 "$package"
	fi
done
echo "== FLAKY: failed among others, passed alone:"
grep -E '^ *--- FAIL: ' "$log" | sed 's/^ *--- FAIL: /   /'
printf '   in %s\n' "${failed[@]}"
