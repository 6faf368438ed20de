package realnode

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// values are examples/values.yaml's kind: what an administrator writes.
const values = `
image: {repository: ` + repository + `, tag: v1}
github:
  appID: 1
  url: http://github.` + outside + `.svc
server: {resources: &small {requests: {cpu: 50m, memory: 64Mi}, limits: {cpu: "1", memory: 512Mi}}}
controller: {resources: *small}
jobContainers: {enabled: true, registryCASecret: {name: registries}}
selfRegistering: {enabled: true}
pools:
  first: &pool
    platform: linux
    labels: [bullpen]
    replicas: 6
    resources: {cpu: 50m, memory: 256Mi}
    template:
      image: ` + runnerRef + `
      command: [/usr/local/bin/bullpen, dev, runner, --work, /bullpen/work]
      terminationGracePeriodSeconds: 600
`

// prepareFiles puts what the commands name into the directory that they run in.
func (w *world) prepareFiles() {
	work := filepath.Join(w.dir, "work")
	repo, err := filepath.Abs(root)
	require.NoError(w, err)
	require.NoError(w, os.Symlink(filepath.Join(repo, "charts"), filepath.Join(work, "charts")))
	w.writeValues("v1", "first")
	require.NoError(w, os.WriteFile(filepath.Join(work, "app.pem"), w.github.AppKeyPEM, 0o600))
	require.NoError(w, os.WriteFile(filepath.Join(work, "database-url"), []byte(databaseInCluster(w.TB, w.database)), 0o600))
}

// writeValues is what an administrator changes before an upgrade.
func (w *world) writeValues(tag, pool string) {
	text := strings.NewReplacer("tag: v1", "tag: "+tag, "first: &pool", pool+":").Replace(values)
	require.NoError(w, os.WriteFile(filepath.Join(w.dir, "work", "values.yaml"), []byte(text), 0o644))
}

// run runs a command of the guide, word by word, and what is appended to it here: waiting, and shorter limits.
func (w *world) run(command string, more ...string) string {
	w.Helper()
	output, err := w.try(w.Context(), command, more...)
	require.NoError(w, err, "%s\n%s", command, output)
	return output
}

func (w *world) try(ctx context.Context, command string, more ...string) (string, error) {
	w.account.run(command)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", strings.Join(append([]string{command}, more...), " "))
	shell.Dir = filepath.Join(w.dir, "work")
	shell.Env = []string{
		"PATH=" + filepath.Join(w.dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + shell.Dir, "KUBECONFIG=" + w.cluster.Plane().AdminKubeconfig(),
	}
	var output bytes.Buffer
	shell.Stdout, shell.Stderr = &output, &output
	err := shell.Run()
	w.Logf("$ %s\n%s", shell.Args[2], output.String())
	return output.String(), err
}

// kubectl runs a command of the test's own, which no guide has.
func (w *world) kubectl(args ...string) (string, error) {
	command := exec.CommandContext(await.ContextWithin(w, patience), w.cluster.Plane().Kubectl(), append([]string{"--kubeconfig=" + w.cluster.Plane().AdminKubeconfig()}, args...)...)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (w *world) kubectlOrFail(args ...string) {
	w.Helper()
	said, err := w.kubectl(args...)
	require.NoError(w, err, said)
}

// commandLine is a line of code in the guide; what follows a backslash belongs to it.
var commandLine = regexp.MustCompile(`(?m)^    ((?:.*\\\n)*.*)$`)

// checkGuide compares the guide with what was run: each of its commands was, word by word, or is marked.
func checkGuide(t testing.TB, ran map[string]bool) {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(root, "docs", "guides", "install.md"))
	require.NoError(t, err)
	commands := 0
	for _, match := range commandLine.FindAllStringSubmatch(string(guide), -1) {
		command := match[1]
		if !regexp.MustCompile(`^(helm|kubectl|head|BULLPEN_SERVER=\S+) `).MatchString(command) {
			continue // of a file
		}
		commands++
		if text, marked := strings.CutSuffix(command, "   # not verified"); marked {
			require.False(t, ran[text], "the guide says that this is not verified, but it is: %s", text)
			continue
		}
		require.True(t, ran[command], "the guide's command is neither run by this test nor marked as not verified:\n%s", command)
	}
	require.Greater(t, commands, 10, "the guide's commands were not found")
}
