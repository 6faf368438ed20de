package process_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
)

var mounts = []sandbox.Mount{
	{MountPath: "/jobs", HostPath: "/H/w"},
	{MountPath: "/jobs/cache", HostPath: "/H/c"},
	{MountPath: "/bullpen", HostPath: "/jobs/b"}, // looks like a mountPath, and is not expanded again
}

func TestSubstitute(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"/jobs":                           "/H/w",
		"/jobs/":                          "/H/w/",
		"/jobs/a/b":                       "/H/w/a/b",
		"/jobs/cache":                     "/H/c",
		"/jobs/cache/x":                   "/H/c/x",
		"/jobs/cached":                    "/H/w/cached",
		"/bullpen/jit":                    "/jobs/b/jit",
		"/jobsspace":                      "/jobsspace",
		"/jobs-2":                         "/jobs-2",
		"/jobs.d":                         "/jobs.d",
		"foo/jobs":                        "foo/jobs",
		"./jobs":                          "./jobs",
		"//jobs":                          "//jobs",
		"${ROOT}/jobs":                    "${ROOT}/jobs",
		"$(pwd)/jobs":                     "$(pwd)/jobs",
		"http://host/jobs/x":              "http://host/jobs/x",
		"/jobs$X":                         "/jobs$X",
		"/jobs*":                          "/jobs*",
		"--file=/jobs/f":                  "--file=/H/w/f",
		"PATH=/bin:/jobs/bin:/jobs/cache": "PATH=/bin:/H/w/bin:/H/c",
		`cp "/jobs/a" '/jobs/b'`:          `cp "/H/w/a" '/H/w/b'`,
		"cd /jobs&&(ls /jobs);cat</jobs/x|tee>/jobs/y": "cd /H/w&&(ls /H/w);cat</H/w/x|tee>/H/w/y",
		"curl -d @/jobs/body":                          "curl -d @/H/w/body",
		`{"dir":"/jobs","n":[/jobs/a,/jobs]}`:          `{"dir":"/H/w","n":[/H/w/a,/H/w]}`,
		"é/jobs /jobsé":                                "é/jobs /jobsé",
		"/jobs\n/jobs\t/jobs":                          "/H/w\n/H/w\t/H/w",
	} {
		require.Equal(t, want, process.Substitute(in, mounts), in)
	}
	require.Equal(t, "/jobs", process.Substitute("/jobs", nil))
}

func FuzzSubstitute(f *testing.F) {
	for _, s := range []string{"/jobs/cache:/jobs", "x=/bullpen", "//jobs//", "/jobs/../jobs", "\xff/jobs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := process.Substitute(s, mounts)
		if !strings.Contains(s, "/jobs") && !strings.Contains(s, "/bullpen") && got != s {
			t.Fatalf("%q names no mount and became %q", s, got)
		}
		// Mounts onto themselves change nothing, whatever the text.
		same := []sandbox.Mount{{MountPath: "/jobs", HostPath: "/jobs"}, {MountPath: "/bullpen", HostPath: "/bullpen"}}
		if got := process.Substitute(s, same); got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}
