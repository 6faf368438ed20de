package agent

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

// Neither waits in a directory that will never hold anything.
func TestSharedDirectory_MissingIsReportedAtOnce(t *testing.T) {
	options := newPod(t, newDispatcher(t)).options
	file := filepath.Join(t.TempDir(), "file")
	touch(file)
	for want, dir := range map[string]string{"no such file or directory; the pod's containers must share it": file + "-no", "is a file": file} {
		options.JITFile = filepath.Join(dir, "jitconfig")
		for _, err := range []error{
			Poll(t.Context(), options),
			Supervise(t.Context(), SuperviseOptions{JITFile: options.JITFile, Command: []string{"true"}}),
		} {
			require.Equal(t, 1, code(t, err))
			require.ErrorContains(t, err, "the shared directory "+dir)
			require.ErrorContains(t, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(jitReply))
	f.Add([]byte(jitReply[:20]))
	f.Add([]byte(`{"jit_config":""}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decode(bytes.NewReader(body))
		if err == nil && got.JITConfig == "" {
			t.Fatal("an empty configuration would end the runner as if there were nothing to do")
		}
		if err != nil && (got != runnerapi.Dispatch{}) {
			t.Fatal("a broken answer came through")
		}
	})
}

var errOtherDevice = errors.New("invalid cross-device link")

func TestInstall_PlacesARunnableCopy(t *testing.T) {
	for name, link := range map[string]func(string, string) error{
		"link": os.Link, "copy": func(string, string) error { return errOtherDevice },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			self := filepath.Join(dir, "self")
			require.NoError(t, os.WriteFile(self, []byte("#!/bin/sh\n"), 0o755))
			require.NoError(t, os.Chmod(self, 0o755))
			target := filepath.Join(dir, "bullpen")
			require.NoError(t, os.WriteFile(target, []byte("old"), 0o600))
			require.NoError(t, install(self, target, link))
			content, err := os.ReadFile(target)
			require.NoError(t, err)
			require.Equal(t, "#!/bin/sh\n", string(content))
			info, err := os.Stat(target)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o755), info.Mode())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 2, "nothing is left beside it")
		})
	}
	dir := t.TempDir()
	require.ErrorContains(t, Install(dir), "is a directory")
	require.ErrorContains(t, Install(filepath.Join(dir, "no", "such")), "installing the agent at")
	odd := filepath.Join(dir, "odd")
	require.NoError(t, os.WriteFile(odd, nil, 0o700))
	require.False(t, linkable(odd), "a link would share its mode")
}
