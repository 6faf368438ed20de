// Package check is the soak's checker: it reads the records of GitHub, the API server, Postgres and the machines, and reports one table in
// which every row must be zero. It shares no code with what it checks, not even the names of labels: of the product it knows only the
// columns of its tables and the names of its service accounts.
//
// The witnesses, as files of the evidence directory:
//
//	github.json        every job and every runner, as GitHub saw them last
//	github-calls.jsonl each mint and each removal of a runner that GitHub was asked for
//	history.jsonl      each change of a claim, a limit and a job's state that Postgres committed, by triggers of the soak's own
//	rows.json          every row of every table at the end
//	audit.log          the API server's audit log
//	machines.jsonl     each start and end of a runner, by the machine that it ran on
//	pods.jsonl         which pods a reading of the cluster, twice a second, showed for the first time, or no more
//	deeds.jsonl        what the soak did, and to whom: harm done on purpose is counted apart
//	arguments.txt      every command line that was seen
//	final.json         what was left in the cluster and on the machine at the end
//	secrets.jsonl      what must be seen nowhere
//
// Begin with Load (evidence.go) and Examine (examine.go).
package check
