package download

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestParseChecksum(t *testing.T) {
	for _, good := range []string{digest, digest + "\n", digest + "  kubectl\n", strings.ToUpper(digest)} {
		sum, err := ParseChecksum([]byte(good))
		require.NoError(t, err, good)
		require.Equal(t, digest, sum.String())
	}
	for _, bad := range []string{"", "\n", digest[1:], digest + "0", strings.Repeat("g", 64), digest + " a b", "<!DOCTYPE html>"} {
		_, err := ParseChecksum([]byte(bad))
		require.ErrorContains(t, err, "not a checksum file", bad)
	}
}

func TestFindChecksum(t *testing.T) {
	other := strings.Repeat("0", 64)
	list := other + "  etcd-v1-linux-amd64.tar.gz.asc\n" + digest + "  etcd-v1-linux-amd64.tar.gz\n" + other + " *etcd-v1-linux-arm64.tar.gz\n"
	sum, err := FindChecksum([]byte(list), "etcd-v1-linux-amd64.tar.gz")
	require.NoError(t, err)
	require.Equal(t, digest, sum.String())
	sum, err = FindChecksum([]byte(list), "etcd-v1-linux-arm64.tar.gz")
	require.NoError(t, err)
	require.Equal(t, other, sum.String())

	_, err = FindChecksum([]byte(list), "etcd-v1-linux-s390x.tar.gz")
	require.ErrorContains(t, err, "does not list etcd-v1-linux-s390x.tar.gz")
	_, err = FindChecksum([]byte("short  file"), "file")
	require.ErrorContains(t, err, "64 hexadecimal digits")
}

func FuzzParseChecksum(f *testing.F) {
	for _, seed := range []string{digest, digest + "  name\n", "", "404: Not Found"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if sum, err := ParseChecksum(data); err == nil {
			require.Contains(t, strings.ToLower(string(data)), sum.String())
		}
	})
}

func FuzzFindChecksum(f *testing.F) {
	f.Add([]byte(digest+"  file\n"), "file")
	f.Add([]byte(digest+" *file\r\n"), "file")
	f.Add([]byte("file"), "file")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		if sum, err := FindChecksum(data, name); err == nil {
			require.Contains(t, strings.ToLower(string(data)), sum.String())
			require.Contains(t, string(data), name)
		}
	})
}

// FuzzPlace gives any Content-Range to a resumed transfer: it may restart it, but never write beside the part's end.
func FuzzPlace(f *testing.F) {
	f.Add(206, "bytes 100-199/200", int64(100))
	f.Add(416, "bytes */100", int64(100))
	f.Add(206, "bytes 100-99/100", int64(100))
	f.Add(200, "", int64(0))
	f.Fuzz(func(t *testing.T, status int, contentRange string, offset int64) {
		response := &http.Response{StatusCode: status, Header: http.Header{"Content-Range": {contentRange}}, ContentLength: -1}
		start, total, err := place(response, offset)
		if err != nil {
			return
		}
		require.True(t, start == 0 || start == offset)
		require.True(t, total == -1 || total >= start)
	})
}
