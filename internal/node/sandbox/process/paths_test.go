package process_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
)

var mounts = []sandbox.Mount{
	{MountPath: "/work", HostPath: "/H/w"},
	{MountPath: "/work/cache", HostPath: "/H/c"},
	{MountPath: "/bullpen", HostPath: "/work/b"}, // looks like a mountPath, and is not looked at again
}

func TestSubstitute(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"/work":                           "/H/w",
		"/work/":                          "/H/w/",
		"/work/a/b":                       "/H/w/a/b",
		"/work/cache":                     "/H/c",
		"/work/cache/x":                   "/H/c/x",
		"/work/cached":                    "/H/w/cached",
		"/bullpen/jit":                    "/work/b/jit",
		"/workspace":                      "/workspace",
		"/work-2":                         "/work-2",
		"/work.d":                         "/work.d",
		"foo/work":                        "foo/work",
		"./work":                          "./work",
		"//work":                          "//work",
		"${ROOT}/work":                    "${ROOT}/work",
		"$(pwd)/work":                     "$(pwd)/work",
		"http://host/work/x":              "http://host/work/x",
		"/work$X":                         "/work$X",
		"/work*":                          "/work*",
		"--file=/work/f":                  "--file=/H/w/f",
		"PATH=/bin:/work/bin:/work/cache": "PATH=/bin:/H/w/bin:/H/c",
		`cp "/work/a" '/work/b'`:          `cp "/H/w/a" '/H/w/b'`,
		"cd /work&&(ls /work);cat</work/x|tee>/work/y": "cd /H/w&&(ls /H/w);cat</H/w/x|tee>/H/w/y",
		"curl -d @/work/body":                          "curl -d @/H/w/body",
		`{"dir":"/work","n":[/work/a,/work]}`:          `{"dir":"/H/w","n":[/H/w/a,/H/w]}`,
		"é/work /worké":                                "é/work /worké",
		"/work\n/work\t/work":                          "/H/w\n/H/w\t/H/w",
	} {
		require.Equal(t, want, process.Substitute(in, mounts), in)
	}
	require.Equal(t, "/work", process.Substitute("/work", nil))
}

func FuzzSubstitute(f *testing.F) {
	for _, s := range []string{"/work/cache:/work", "x=/bullpen", "//work//", "/work/../work", "\xff/work"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := process.Substitute(s, mounts)
		if !strings.Contains(s, "/work") && !strings.Contains(s, "/bullpen") && got != s {
			t.Fatalf("%q names no mount and became %q", s, got)
		}
		// Mounts onto themselves change nothing, whatever the text.
		same := []sandbox.Mount{{MountPath: "/work", HostPath: "/work"}, {MountPath: "/bullpen", HostPath: "/bullpen"}}
		if got := process.Substitute(s, same); got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}
