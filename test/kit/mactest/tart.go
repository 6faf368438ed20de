//go:build unix

package mactest

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TartArchive makes an archive as an administrator supplies one: a .tar.gz with tart.app, in which the program is the fake of Tart. It works
// on a model Mac only. It returns the file's path on this machine, and its digest.
func TartArchive(t *testing.T) (path, digest string) {
	t.Helper()
	executable, err := Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(executable)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "tart.tar.gz")
	file, err := os.Create(path)
	require.NoError(t, err)
	sum := sha256.New()
	packed, err := gzip.NewWriterLevel(io.MultiWriter(file, sum), gzip.BestSpeed)
	require.NoError(t, err)
	archive := tar.NewWriter(packed)
	for _, entry := range []struct {
		name    string
		content []byte
		mode    int64
	}{
		{"tart.app/Contents/Info.plist", []byte("<plist version=\"1.0\"><dict></dict></plist>\n"), 0o644},
		{"tart.app/Contents/MacOS/tart", program, 0o755},
	} {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: entry.name, Mode: entry.mode, Size: int64(len(entry.content)), Typeflag: tar.TypeReg}))
		_, err := archive.Write(entry.content)
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, packed.Close())
	require.NoError(t, file.Close())
	return path, hex.EncodeToString(sum.Sum(nil))
}
