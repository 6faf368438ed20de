package hosts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

func TestMain(m *testing.M) {
	code := mactest.Main(m.Run)
	if path, err := bullpen(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// bullpen is the command, with fault points.
var bullpen = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bullpen-hosts")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "bullpen")
	return path, gobuild.Build(path, "github.com/bullpen-ci/bullpen/cmd/bullpen", "-tags", "faultpoints,production")
})

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: bootstrap, user: {token: abcdef.0123456789abcdef}}]
contexts: [{name: c, context: {cluster: c, user: bootstrap}}]
current-context: c
`

// host is a model Mac, and its desired state.
type host struct {
	*mactest.Mac
	t       *testing.T
	payload machost.Payload
	faults  string
}

// newHost boots a Mac. Owners of files count, so it takes root.
func newHost(t *testing.T, options ...mactest.Option) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("takes root: files of the model belong to several users")
	}
	h := &host{Mac: mactest.Boot(t, options...), t: t, faults: t.TempDir()}
	archive := tartArchive(t)
	h.WriteFile("/tmp/tart.tar.gz", string(archive), 0o644)
	sum := sha256.Sum256(archive)
	h.payload = machost.Payload{
		Config: machost.Config{
			User: h.User, Hostname: "mac-1",
			Tart: machost.Tart{Archive: "/tmp/tart.tar.gz", SHA256: hex.EncodeToString(sum[:])},

			SSH:  machost.SSH{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}},
			Node: machost.Node{IP: "127.0.0.1"},
		},
		Secrets: machost.Secrets{Password: machost.NewSecret(h.Password), BootstrapKubeconfig: machost.NewSecret(kubeconfig)},
	}
	return h
}

// tartArchive holds a Tart that knows its version.
func tartArchive(t *testing.T) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	entries := tar.NewWriter(zipped)
	for _, e := range []tar.Header{
		{Name: "./LICENSE", Mode: 0o644, Typeflag: tar.TypeReg},
		{Name: "tart.app/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "tart.app/Contents/Info.plist", Mode: 0o644, Typeflag: tar.TypeReg},
		{Name: "tart.app/Contents/MacOS/tart", Mode: 0o755, Typeflag: tar.TypeReg},
	} {
		content := "#!/bin/sh\necho 2.30.0\n"
		if e.Typeflag == tar.TypeDir {
			content = ""
		}
		e.Size = int64(len(content))
		require.NoError(t, entries.WriteHeader(&e))
		_, err := entries.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(entries.Close(), zipped.Close()))
	return archive.Bytes()
}

// outcome is the output of an apply, and its exit.
type outcome struct {
	stdout, stderr string
	state          *os.ProcessState
}

func (o outcome) killed() bool {
	return o.state.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

// apply runs the command with the payload on standard input, as a session of root's on the Mac would.
func (h *host) apply(args ...string) outcome {
	h.t.Helper()
	path, err := bullpen()
	require.NoError(h.t, err)
	line, err := machost.EncodePayload(h.payload)
	require.NoError(h.t, err)
	command := exec.CommandContext(await.ContextWithin(h.t, 3*time.Minute), path, append([]string{"host", "apply", "--root", string(h.Root), "--stdin", "--session", "10.0.0.9"}, args...)...)
	command.Env = append(os.Environ(), "DEVMAC_USER=root", "BULLPEN_FAULTPOINT_DIR="+h.faults)
	input, err := command.StdinPipe()
	require.NoError(h.t, err)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.StdoutPipe()
	require.NoError(h.t, err)
	require.NoError(h.t, command.Start())
	_, err = input.Write(line)
	require.NoError(h.t, err)
	stdout := confirmAll(h.t, output, input)
	_ = await.Call(h.t, command.Wait, "the command exits")
	return outcome{stdout, stderr.String(), command.ProcessState}
}

// tree is everything below a directory of the Mac: mode, owner and content of each file.
func (h *host) tree(except func(path string) bool) map[string]string {
	h.t.Helper()
	found := map[string]string{}
	require.NoError(h.t, filepath.WalkDir(string(h.Root), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed in between
		}
		if err != nil {
			return err
		}
		logical := "/" + mustRel(string(h.Root), path)
		if except(logical) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s %d:%d ", info.Mode(), owner.Uid, owner.Gid)
		switch {
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += target
		case entry.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if len(content) > 4096 || !isText(content) {
				sum := sha256.Sum256(content)
				content = []byte(hex.EncodeToString(sum[:]))
			}
			text += string(content)
		}
		found[hardware.ReplaceAllString(logical, "UUID")] = text
		return nil
	}))
	return found
}

// hardware is a Mac's own id, which is in the names of settings of one machine.
var hardware = regexp.MustCompile(`[0-9A-Z]{8}-[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{12}`)

func isText(content []byte) bool { return !bytes.ContainsRune(content, 0) }

func mustRel(base, path string) string {
	rel, err := filepath.Rel(base, path)
	if err != nil {
		panic(err)
	}
	return rel
}
