package onebox

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
)

// Tools of the image that is made for runners. Those that every step needs have to be there. Programs that are of no use without more files than
// their shared libraries, such as git and python3, are left out: an image of one's own has them.
const (
	neededTools = "bash sh env cat mkdir rm sleep"
	usualTools  = `grep sed awk find xargs diff cmp tar gzip gunzip zcat bzip2 xz zstd unzip zip curl wget jq openssl make timeout getent
		[ basename base64 chgrp chmod chown cksum comm cp csplit cut date dd df dirname du echo expand expr factor false fmt fold groups head hostname id install join kill
		ln ls md5sum mkfifo mktemp mv nice nl nohup nproc numfmt od paste pathchk pr printenv printf ps pwd readlink realpath rmdir seq sha1sum sha256sum sha512sum
		shuf sort split stat stdbuf stty sum sync tac tail tee test touch tr true truncate tsort tty uname unexpand uniq unlink wc which whoami yes`
)

// presentTools are the needed ones, and the usual ones that this machine has.
func presentTools(has func(program string) bool) []string {
	tools := strings.Fields(neededTools)
	for _, tool := range strings.Fields(usualTools) {
		if has(tool) {
			tools = append(tools, tool)
		}
	}
	return tools
}

func onPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// runnerFiles are what the runners' image has beside programs.
func runnerFiles() []realnode.File {
	files := []realnode.File{
		{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/root:/bin/bash\nrunner:x:1001:1001:runner:/home/runner:/bin/bash\n"), Mode: 0o644},
		{Path: "/etc/group", Content: []byte("root:x:0:\nrunner:x:1001:\n"), Mode: 0o644},
		{Path: "/etc/nsswitch.conf", Content: []byte("passwd: files\ngroup: files\nhosts: files dns\n"), Mode: 0o644},
		{Path: "/tmp", Mode: 0o777 | fs.ModeSticky},
		{Path: "/home/runner", Owner: 1001},
	}
	const authorities = "/etc/ssl/certs/ca-certificates.crt" // Debian's; curl is of no use without
	if content, err := os.ReadFile(authorities); err == nil {
		files = append(files, realnode.File{Path: authorities, Content: content, Mode: 0o644})
	}
	return files
}

// fileSet are files of an image, each path once: the first that is added counts.
type fileSet struct {
	all  []realnode.File
	seen map[string]bool
}

func (s *fileSet) add(files ...realnode.File) {
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	for _, file := range files {
		if !s.seen[file.Path] {
			s.seen[file.Path] = true
			s.all = append(s.all, file)
		}
	}
}

// noDatabaseError is a PostgreSQL of which no image can be made.
type noDatabaseError struct{ err error }

func (e *noDatabaseError) Error() string { return e.err.Error() }
func (e *noDatabaseError) Unwrap() error { return e.err }

// hostImages are made of this machine's programs: the agent's with what the relay needs, the runners', and, if the directory of PostgreSQL's programs
// is not empty, a database for jobs. The error is a *noDatabaseError if the others can be made without it.
func hostImages(ctx context.Context, binary, agent, postgres string) ([]realnode.Image, error) {
	const programs = "/usr/local/bin/"
	product, err := realnode.HostProgram(binary, programs+"bullpen")
	if err != nil {
		return nil, fmt.Errorf("packing bullpen into an image: %w", err)
	}
	helper, err := realnode.HostProgram(agent, programs+agentName)
	if err != nil {
		return nil, fmt.Errorf("packing %s into an image: %w", agentName, err)
	}
	tools, err := realnode.HostPrograms(presentTools(onPath)...)
	if err != nil {
		return nil, fmt.Errorf("making the runners' image of this machine's programs: %w. Name another image in a pool file (--pool-file)", err)
	}
	var runner fileSet
	runner.add(tools...)
	runner.add(product...)
	runner.add(runnerFiles()...)
	images := []realnode.Image{
		{Ref: agentImage, User: "65532:65532", Entrypoint: []string{programs + "bullpen"}, Env: []string{"PATH=" + strings.TrimSuffix(programs, "/")}, Files: append(product, helper...)},
	}
	if postgres != "" {
		for _, tool := range postgresTools { // jobs in this image use the database
			client, err := realnode.HostProgram(filepath.Join(postgres, tool), "/usr/bin/"+tool)
			if err != nil {
				return nil, &noDatabaseError{fmt.Errorf("packing %s: %w", tool, err)}
			}
			runner.add(client...)
		}
		database, err := postgresImage(ctx, postgres)
		if err != nil {
			return nil, &noDatabaseError{err}
		}
		images = append(images, database)
	}
	return append(images, realnode.Image{
		Ref: RunnerImage, User: "1001:1001", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/runner"}, Files: runner.all,
	}), nil
}
