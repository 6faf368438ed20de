package jobcontainers

import (
	"io/fs"

	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// The files of containers that have exited stay on the node until the pod is deleted, and no kubelet counts them: a job of many steps could fill
// its disk. JOB-5.
func TestContainerSteps_JOB5_GiveTheirDiskBack(t *testing.T) {
	const leftover = "file-of-a-container-that-has-exited"
	// A runtime makes the working directory when it makes the container, in no layer of the image.
	action := Image{Name: "acme/action:1", Config: jobcontainer.ImageConfig{WorkingDir: "/made/by/the-runtime"}}
	j := startJob(t, debian(), action)
	j.prepared(jobContainer("debian:12", nil))
	j.pod.WriteWork(t, "_temp/fill.sh", `set -e
		mkdir -p /tmp/deep/er
		for at in /tmp /tmp/deep/er /etc /made/by/the-runtime; do cat /bullpen-row >$at/`+leftover+`; done
	`, 0o755)
	for range 2 {
		step := container("acme/action:1", object{"entryPoint": "/bin/sh", "entryPointArgs": []string{"/__w/_temp/fill.sh"}})
		answer := j.run(j.call("run_container_step", step))
		require.Zero(t, answer.Code, answer.Log)
	}
	j.ended("step-2-0")
	j.ended("step-3-0")
	require.Empty(t, j.pod.Left(t, leftover))
	require.Contains(t, j.program("cat", "/__w/_temp/fill.sh"), "cat", "the volume has its files")
	j.cleanup()
}

// Left are the files of that name below the roots of containers.
func (p *processPod) Left(t *testing.T, name string) (paths []string) {
	t.Helper()
	roots, err := filepath.Glob(p.at("root-*"))
	require.NoError(t, err)
	for _, root := range roots {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Base(path) == name {
				paths = append(paths, path)
			}
			return err
		}))
	}
	return paths
}
