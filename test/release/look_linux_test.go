package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/postgres"
)

// liveClaims are the pods that somebody still works in, by the ledger's word, of all that there ever were.
func (w *world) liveClaims() []string {
	store, err := postgres.Open(w.Context(), w.database, 2)
	require.NoError(w, err)
	defer store.Close()
	var live []string
	removed := w.witness.seen()
	require.NotEmpty(w, removed)
	for _, removal := range removed {
		claim, err := store.Claim(w.Context(), removal.UID)
		require.NoError(w, err)
		if claim.State.Live() {
			live = append(live, removal.Pod+" is "+string(claim.State))
		}
	}
	return live
}

// requireVersion asks the binaries that run in the pods of servers and controllers which they are, once a rollout is over.
func (w *world) requireVersion(version string) {
	w.Helper()
	for _, part := range []string{"server", "controller"} {
		w.eventually("every "+part+" is "+version, func() bool {
			versions := w.running(part)
			for _, v := range versions {
				if v != version {
					return false
				}
			}
			return len(versions) == 2
		})
	}
}

// running are the versions of the containers of a part, by their own word.
func (w *world) running(part string) []string {
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(w, err)
	owner, err := os.ReadFile(filepath.Join(w.dir, "node", "owner"))
	require.NoError(w, err)
	mark := "BULLPEN_SANDBOX=" + strings.TrimSpace(string(owner)) + "/"
	var versions []string
	for _, file := range processes {
		process := filepath.Dir(file)
		if _, err := strconv.Atoi(filepath.Base(process)); err != nil {
			continue
		}
		command, err := os.ReadFile(file)
		environ, readable := os.ReadFile(filepath.Join(process, "environ"))
		if err != nil || readable != nil || !bytes.HasPrefix(command, []byte("/usr/local/bin/bullpen\x00"+part+"\x00")) || !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		output, err := exec.CommandContext(w.Context(), filepath.Join(process, "exe"), "--version").Output()
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(output))
		versions = append(versions, fields[len(fields)-1])
	}
	return versions
}
