package onebox

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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

// hostImages are made of this machine's programs: the agent's with what the relay needs, and the runners'.
func hostImages(binary, agent string) ([]realnode.Image, error) {
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
	return []realnode.Image{
		{Ref: agentImage, User: "65532:65532", Entrypoint: []string{programs + "bullpen"}, Env: []string{"PATH=" + strings.TrimSuffix(programs, "/")}, Files: append(product, helper...)},
		{Ref: RunnerImage, User: "1001:1001", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/runner"}, Files: append(append(tools, product...), runnerFiles()...)},
	}, nil
}
