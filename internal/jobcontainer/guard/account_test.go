package guard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

const (
	somePasswd = "# comment\nroot:x:0:0:root:/root:/bin/sh\nbroken:x\nnode:x:1000:1000::/home/node:\n1002:x:5:6::/five:\nnohome:x:9:9:::\nhuge:x:99999999999:1::/:\n"
	someGroup  = "root:x:0:\nnode:x:1000:\nwheel:x:10:root,node\nvideo:x:44:node\nbroken\n1003:x:77:\n"
)

// The rows are what Docker does: https://github.com/moby/sys/blob/main/user/user_test.go has such ones.
func TestFindAccount_DoesAsDocker(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]account{
		"":           {0, 0, []uint32{10}, "/root"},
		"root":       {0, 0, []uint32{10}, "/root"},
		"node":       {1000, 1000, []uint32{10, 44}, "/home/node"},
		"1000":       {1000, 1000, []uint32{10, 44}, "/home/node"},
		"node:":      {1000, 1000, []uint32{10, 44}, "/home/node"},
		"node:video": {1000, 44, nil, "/home/node"},
		"node:44":    {1000, 44, nil, "/home/node"},
		"1000:5000":  {1000, 5000, nil, "/home/node"},
		"4711":       {4711, 0, nil, "/"},
		"4711:video": {4711, 44, nil, "/"},
		":video":     {0, 44, nil, "/root"},
		"1002":       {5, 6, nil, "/five"}, // a name goes before a number
		"0:1003":     {0, 77, nil, "/root"},
		"nohome":     {9, 9, nil, "/"},
	} {
		got, err := findAccount(spec, []byte(somePasswd), []byte(someGroup))
		require.NoError(t, err, spec)
		require.Equal(t, want, got, spec)
	}
	for spec, text := range map[string]string{
		"nobody": `user "nobody" is not in the image's /etc/passwd`, "-1": `user "-1"`, "huge": `user "huge"`, "2147483648": `user "2147483648"`,
		"node:nogroup": `group "nogroup" is not in the image's /etc/group`, "node:-1": `group "-1"`,
	} {
		_, err := findAccount(spec, []byte(somePasswd), []byte(someGroup))
		require.ErrorContains(t, err, text)
	}
	got, err := findAccount("1001:1001", nil, nil)
	require.NoError(t, err, "an image without these files")
	require.Equal(t, account{1001, 1001, nil, "/"}, got)
}

func TestOSRelease_ReadsIDs(t *testing.T) {
	t.Parallel()
	id, like := osRelease([]byte("# x\nID=\"opensuse-leap\"\nID_LIKE='suse opensuse'\nVERSION_ID=1\n"))
	require.Equal(t, "opensuse-leap", id)
	require.Equal(t, []string{"suse", "opensuse"}, like)
	id, like = osRelease([]byte("ID=" + strings.Repeat("x", 1000) + "\nID_LIKE=\"" + strings.Repeat("a\x01b ", 1000) + "\"\n"))
	require.Empty(t, id)
	require.Empty(t, like)
}

func FuzzFindAccount(f *testing.F) {
	f.Add("node:video", []byte(somePasswd), []byte(someGroup))
	f.Add("1000", []byte("a:b:1000:2:c:d:e"), []byte("g:x:3:a,b"))
	f.Fuzz(func(t *testing.T, spec string, passwd, group []byte) {
		got, err := findAccount(spec, passwd, group)
		if err == nil && (got.uid > maxID || got.gid > maxID || got.home == "") {
			t.Fatalf("%q is %+v", spec, got)
		}
		if names := userNames(passwd, 3); len(names) > 3 {
			t.Fatalf("%d names", len(names))
		}
		_, like := osRelease(passwd)
		require.LessOrEqual(t, len(like), maxLike)
	})
}

func TestRing_KeepsTheEnd(t *testing.T) {
	t.Parallel()
	r := newRing(100_000)
	for range 300_000 {
		r.write(false, []byte("a"))
		r.write(true, []byte("b"))
	}
	pieces, dropped := r.content()
	kept := 0
	for _, p := range pieces {
		kept += len(p.data)
	}
	require.EqualValues(t, 600_000, int(dropped)+kept)
	require.LessOrEqual(t, kept*(1+pieceCost), 100_000+pieceCost+1, "small pieces count with what they cost")
	r.write(false, []byte(strings.Repeat("x", 1_000_000)+"end"))
	pieces, dropped = r.content()
	kept = 0
	for _, p := range pieces {
		kept += len(p.data)
	}
	require.EqualValues(t, 1_600_003, int(dropped)+kept)
	require.Greater(t, kept, 80_000)
	require.LessOrEqual(t, kept, 100_000)
	require.Equal(t, "xxend", r.tail(5))
}

func TestMissingHosts_AddsWhatIsMissing(t *testing.T) {
	t.Parallel()
	db := wire.HostEntry{Address: "127.0.0.1", Name: "db"}
	require.Equal(t, "127.0.0.1\tdb\n", missingHosts("", []wire.HostEntry{db, db}))
	require.Equal(t, "\n127.0.0.1\tdb\n", missingHosts("127.0.0.1 other", []wire.HostEntry{db}))
	require.Empty(t, missingHosts("127.0.0.1 other  db alias # comment", []wire.HostEntry{db}))
	require.Equal(t, "127.0.0.1\tdb\n", missingHosts("# 127.0.0.1 db\n10.0.0.1 db\n", []wire.HostEntry{db}))
}
