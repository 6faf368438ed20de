package dockerfile

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// file is an entry of a layer. Without a type it is a regular file, or a directory if its name ends with a slash.
type file struct {
	name, content string
	kind          byte
	mode          int64
	uid           int
	extended      map[string]string
}

var aTime = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// archive is a layer.
func archive(t testing.TB, files ...file) []byte {
	t.Helper()
	var to bytes.Buffer
	w := tar.NewWriter(&to)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Uid: f.uid, Gid: f.uid, ModTime: aTime, PAXRecords: f.extended}
		switch {
		case f.kind == tar.TypeSymlink || f.kind == tar.TypeLink:
			header.Linkname = f.content
		case strings.HasSuffix(f.name, "/"):
			header.Typeflag = tar.TypeDir
		case f.kind == 0:
			header.Typeflag, header.Size = tar.TypeReg, int64(len(f.content))
		}
		if header.Mode == 0 {
			header.Mode = 0o755
		}
		require.NoError(t, w.WriteHeader(header))
		if header.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(f.content))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return to.Bytes()
}

// tree is what a directory has: path, and content of files or "-> target" of links; directories have a slash.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, _ := filepath.Rel(root, path)
		switch {
		case name == ".":
		case d.IsDir():
			found = append(found, name+"/")
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			require.NoError(t, err)
			found = append(found, name+" -> "+target)
		case d.Type() == fs.ModeNamedPipe:
			found = append(found, name+" |")
		default:
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			found = append(found, name+" "+string(content))
		}
		return nil
	}))
	slices.Sort(found)
	return found
}

// unpacked writes layers as the server does.
func unpacked(t *testing.T, layers ...[]byte) (root string, output string) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	args := []string{"dockerfile", "--unpack", root, "--"}
	for i, layer := range layers {
		path := filepath.Join(dir, string(rune('a'+i)))
		require.NoError(t, os.WriteFile(path, layer, 0o600))
		args = append(args, path)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(await.Context(t), self, args...)
	said, err := command.CombinedOutput()
	if err == nil {
		require.Empty(t, string(said))
	}
	return root, string(said)
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		layers [][]file
		want   []string
	}{
		"files, directories, links and pipes": {[][]file{{
			{name: "./"}, {name: "a/"}, {name: "a/b", content: "text"}, {name: "c/d/e", content: "parents are made"}, {name: "l", content: "a/b", kind: tar.TypeSymlink},
			{name: "hard", content: "a/b", kind: tar.TypeLink}, {name: "pipe", kind: tar.TypeFifo}, {name: "null", kind: tar.TypeChar}, {name: "disk", kind: tar.TypeBlock},
		}}, []string{"a/", "a/b text", "c/", "c/d/", "c/d/e parents are made", "hard text", "l -> a/b", "pipe |"}},
		"a layer replaces": {[][]file{
			{{name: "f", content: "1"}, {name: "d/x", content: "1"}, {name: "s", content: "d", kind: tar.TypeSymlink}, {name: "t/x", content: "1"}},
			{{name: "f", content: "2"}, {name: "d", content: "2"}, {name: "s/"}, {name: "t/"}, {name: "t/y", content: "2"}},
		}, []string{"d 2", "f 2", "s/", "t/", "t/x 1", "t/y 2"}},
		"a layer removes": {[][]file{
			{{name: "a/b/c", content: "1"}, {name: "a/b/d", content: "1"}, {name: "e", content: "1"}, {name: "keep/f", content: "1"}},
			{{name: "a/b/.wh.c"}, {name: ".wh.e"}, {name: ".wh.absent"}, {name: "absent/.wh.x"}, {name: ".wh..wh.plnk"}},
		}, []string{"a/", "a/b/", "a/b/d 1", "keep/", "keep/f 1"}},
		"a directory that was removed and made again has nothing of before": {[][]file{
			{{name: "a/b/c", content: "1"}, {name: "o/b/c", content: "1"}},
			{{name: "a/"}, {name: "a/new", content: "2"}, {name: ".wh.a"}, {name: "o/b/d", content: "2"}, {name: "o/"}, {name: "o/.wh..wh..opq"}},
		}, []string{"a/", "a/new 2", "o/", "o/b/", "o/b/d 2"}},
		"what is opaque first is not removed later": {[][]file{
			{{name: "o/old", content: "1"}},
			{{name: "o/"}, {name: "o/.wh..wh..opq"}, {name: "o/new", content: "2"}},
		}, []string{"o/", "o/new 2"}},
		"links lead nowhere outside": {[][]file{
			{{name: "real/"}, {name: "abs", content: "/real", kind: tar.TypeSymlink}, {name: "up", content: "../../../../real", kind: tar.TypeSymlink}},
			{{name: "abs/x", content: "2"}, {name: "up/y", content: "2"}, {name: "../../z", content: "2"}, {name: "h", content: "../../real/x", kind: tar.TypeLink}},
		}, []string{"abs -> /real", "h 2", "real/", "real/x 2", "real/y 2", "up -> ../../../../real", "z 2"}},
		"parents are links to what is not there yet": {[][]file{{
			{name: "run", content: "var/run", kind: tar.TypeSymlink}, {name: "run/x", content: "1"}, {name: "abs", content: "/a/b", kind: tar.TypeSymlink}, {name: "abs/c/d", content: "1"},
			{name: "one", content: "two", kind: tar.TypeSymlink}, {name: "two", content: "/three", kind: tar.TypeSymlink}, {name: "one/y", content: "1"},
		}}, []string{"a/", "a/b/", "a/b/c/", "a/b/c/d 1", "abs -> /a/b", "one -> two", "run -> var/run", "three/", "three/y 1", "two -> /three", "var/", "var/run/", "var/run/x 1"}},
		"what a layer has twice": {[][]file{{
			{name: "d/"}, {name: "d/e/"}, {name: "d", content: "1"}, {name: "a", content: "1"}, {name: "./a", content: "a", kind: tar.TypeLink},
		}}, []string{"a 1", "d 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var layers [][]byte
			for _, files := range c.layers {
				layers = append(layers, archive(t, files...))
			}
			root, said := unpacked(t, layers...)
			require.Empty(t, said)
			require.Equal(t, c.want, tree(t, root))
		})
	}
}

// Programs of an image need their modes, owners, times and capabilities.
func TestUnpack_KeepsAttributes(t *testing.T) {
	t.Parallel()
	owner := func(uid int) int { // others than root have one user in their namespace
		if os.Geteuid() != 0 {
			return 0
		}
		return uid
	}
	capability := string([]byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // CAP_NET_BIND_SERVICE
	root, said := unpacked(t, archive(t,
		file{name: "./", mode: 0o711}, file{name: "d/", mode: 0o2775, uid: owner(7)}, file{name: "d/suid", mode: 0o4755, uid: owner(8)},
		file{name: "cap", uid: owner(9), extended: map[string]string{xattr + "security.capability": capability, xattr + "unknown.name": "x"}},
		file{name: "tmp/", mode: 0o1777}, file{name: "link", kind: tar.TypeSymlink, content: "nowhere", uid: owner(10)},
	))
	require.Empty(t, said)
	for name, want := range map[string]struct {
		mode fs.FileMode
		uid  int
	}{
		".": {fs.ModeDir | 0o711, 0}, "d": {fs.ModeDir | fs.ModeSetgid | 0o775, 7}, "d/suid": {fs.ModeSetuid | 0o755, 8}, "tmp": {fs.ModeDir | fs.ModeSticky | 0o777, 0},
		"cap": {0o755, 9}, "link": {fs.ModeSymlink | 0o777, 10},
	} {
		info, err := os.Lstat(filepath.Join(root, name))
		require.NoError(t, err)
		stat, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		require.Equal(t, want.mode, info.Mode(), name)
		require.EqualValues(t, os.Geteuid()+owner(want.uid), stat.Uid, name)
		require.EqualValues(t, os.Getegid()+owner(want.uid), stat.Gid, name)
		if name != "link" {
			require.True(t, aTime.Equal(info.ModTime()), "%s: %s", name, info.ModTime())
		}
	}
	value := make([]byte, 64)
	n, err := syscall.Getxattr(filepath.Join(root, "cap"), "security.capability", value)
	require.NoError(t, err)
	require.Equal(t, capability[4:], string(value[4:len(capability)]), "beside its version, which names the namespace's root")
	require.GreaterOrEqual(t, n, len(capability))
}

func TestUnpack_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	whole := archive(t, file{name: "a", content: "text"})
	for want, layer := range map[string][]byte{
		"unpacking layer 2 of the image: unexpected EOF":           whole[:514],
		"unpacking layer 2 of the image: a has the unknown type":   archive(t, file{name: "a", kind: 'Z'}),
		"unpacking layer 2 of the image: archive/tar: invalid tar": bytes.Repeat([]byte("x"), 1024),
		"no such file or directory":                                archive(t, file{name: "h", content: "absent", kind: tar.TypeLink}),
		"file exists":                                              archive(t, file{name: "l", content: "l", kind: tar.TypeSymlink}, file{name: "l/x"}),
		"a: not a directory":                                       archive(t, file{name: "a/b/c"}),
	} {
		_, said := unpacked(t, whole, layer)
		require.Contains(t, said, want)
	}
	_, said := unpacked(t)
	require.Empty(t, said, "an image without layers")
}
