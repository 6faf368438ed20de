package onebox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

func TestPresentTools_LeavesOutWhatThisMachineLacks(t *testing.T) {
	tools := presentTools(func(program string) bool { return program == "curl" })
	require.Equal(t, append(strings.Fields(neededTools), "curl"), tools)
}

func TestHostImages_HaveTheProgramsAndAUser(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bullpen", agentName} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	images, err := hostImages(t.Context(), filepath.Join(dir, "bullpen"), filepath.Join(dir, agentName), "")
	require.NoError(t, err)
	require.Len(t, images, 2, "without PostgreSQL there is no image of it")
	paths := func(image realnode.Image) string {
		var all []string
		for _, file := range image.Files {
			all = append(all, file.Path)
		}
		return "\n" + strings.Join(all, "\n") + "\n"
	}
	require.Equal(t, agentImage, images[0].Ref)
	require.Contains(t, paths(images[0]), "\n/usr/local/bin/bullpen\n/usr/local/bin/bullpen-agent\n")
	require.Equal(t, RunnerImage, images[1].Ref)
	for _, path := range []string{"/usr/local/bin/bullpen", "/usr/bin/bash", "/etc/passwd", "/home/runner"} {
		require.Contains(t, paths(images[1]), "\n"+path+"\n")
	}
	require.NotContains(t, paths(images[1]), agentName)
	_, err = hostImages(t.Context(), filepath.Join(dir, "gone"), filepath.Join(dir, agentName), "")
	require.ErrorContains(t, err, "packing bullpen into an image")

	programs, err := postgres.Programs(t.Context())
	require.NoError(t, err)
	images, err = hostImages(t.Context(), filepath.Join(dir, "bullpen"), filepath.Join(dir, agentName), programs)
	require.NoError(t, err)
	require.Len(t, images, 3)
	require.Equal(t, PostgresImage, images[1].Ref)
	for _, path := range []string{programs + "/initdb", programs + "/postgres", "/usr/bin/pg_isready", "/usr/local/bin/start-postgres", "/etc/passwd"} {
		require.Equal(t, 1, strings.Count(paths(images[1]), "\n"+path+"\n"), path)
	}
	require.Contains(t, paths(images[1]), "/plpgsql.so\n")
	require.NotContains(t, paths(images[1]), "llvmjit")
	require.Contains(t, paths(images[2]), "\n/usr/bin/psql\n")
}

func TestCheckPlatforms_RefusesAnImageForAnotherMachine(t *testing.T) {
	image := func(names []string, platforms ...string) []realnode.ArchivedImage {
		return []realnode.ArchivedImage{{Names: names, Platforms: platforms}}
	}
	require.NoError(t, checkPlatforms("f", image([]string{"a:1"}, "linux/amd64", "linux/arm64"), "linux/arm64"))
	err := checkPlatforms("f", image([]string{"a:1"}, "linux/arm64"), "linux/amd64")
	require.EqualError(t, err, "image a:1 is for linux/arm64, and this machine is linux/amd64. Save an image for this machine: `docker pull --platform linux/amd64 NAME:TAG`, then `docker save`")
	require.ErrorContains(t, checkPlatforms("f", image(nil, "linux/amd64"), "linux/amd64"), "without a name")
}

func TestRunningNode_SaysWhatIsMissing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("others are told that they need root")
	}
	dir := t.TempDir()
	_, err := runningNode(dir)
	require.ErrorContains(t, err, "is not running in "+dir)
	self, err := childproc.Identify("up", os.Getpid())
	require.NoError(t, err)
	write := func(where Where) {
		data, err := json.Marshal(where)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), data, 0o600))
	}
	write(Where{Owner: self})
	_, err = runningNode(dir)
	require.ErrorContains(t, err, "Start it with --containers")
	write(Where{Owner: self, NodeInit: 7})
	node, err := runningNode(dir)
	require.NoError(t, err)
	require.Equal(t, 7, node.Init)
	self.Started = "another"
	write(Where{Owner: self, NodeInit: 7})
	_, err = runningNode(dir)
	require.ErrorContains(t, err, "is not running")
}
