package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/test/docs"
)

// documented runs each of the administrators' commands of the pages that only read, with the names of this fleet, under the roles that are shipped.
func documented(t *testing.T, dir string) {
	list, stderr, code := run(t, "jobs", "--ended", "--conclusion", "success", "-o", "json", "--state-dir", dir) // which has a log
	require.Zero(t, code, stderr)
	var jobs []adminapi.Job
	require.NoError(t, json.Unmarshal([]byte(list), &jobs))
	require.NotEmpty(t, jobs)
	id := strconv.FormatInt(jobs[0].ID, 10)
	fleet := strings.NewReplacer("JOB", id, "31415926535", id, "ACCOUNT", "acme", "@4711", "acme", "linux-4cpu", "default", "POOL", "default")
	pages, err := docs.Pages("../..")
	require.NoError(t, err)
	ran := map[string]bool{}
	for name, text := range pages {
		if strings.HasPrefix(name, "docs/adr/") {
			continue
		}
		for _, block := range docs.Blocks(name, text) {
			for _, command := range docs.Commands(block) {
				for _, words := range command.Parts() {
					args, reads := docs.Reads(words, fleet)
					line := strings.Join(args, " ")
					if !reads || command.Unverified != "" || strings.Contains(line, "[flags]") || ran[line] {
						continue
					}
					ran[line] = true
					_, stderr, code := run(t, append(args, "--state-dir", dir)...)
					require.Zero(t, code, "%s: %s\n%s", command.At(), command.Shell, stderr)
				}
			}
		}
	}
	require.Greater(t, len(ran), 20)
}
