package realnode

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// anAction is an action as a repository has it. Its image has a file that a step of the build removes. Two others of the repository differ in a file
// that has the same size and time in both, as those of a commit do.
const anAction = `set -eu
work=/home/runner/_work
action=$work/_actions/acme/greet/v1
mkdir -p $action/root/usr $work/_temp/_github_home $work/_temp/_github_workflow $work/_temp/_runner_file_commands $work/_temp/_runner_hook_responses $work/app/app
cp -a /usr/bin /usr/lib /usr/lib64 $action/root/usr && cp -a /bin /lib /lib64 $action/root
echo content >$work/app/app/file
echo one >$action/root/removed
cat >$action/Dockerfile <<'END'
FROM scratch
COPY root /
RUN ["/bin/bash", "-c", "rm /removed; mkdir -m 1777 /tmp; echo made >/made"]
ENV GREETING="from the image" KEPT=kept
WORKDIR /unused
COPY entry.sh /
ENTRYPOINT ["/bin/bash", "/entry.sh"]
END
cat >$action/entry.sh <<'END'
echo "said: $GREETING, $KEPT, $1, $2, with $(cat file)"
[[ -e /removed ]] || echo "without what was removed, and $(cat /made)"
while read -r name value; do case $name in CapEff:|NSpid:|Seccomp:|Uid:) echo "has $name" $value;; esac; done </proc/self/status
echo "$(cat /github/workspace/file)" >/github/workspace/written
echo "result=done" >>"$GITHUB_OUTPUT"
[[ $2 != wait ]] || { echo >/github/workspace/waits; while :; do sleep 1; done; }
exit 7
END
for other in A B; do
  mkdir $action/$other
  cp -a $action/root $action/$other
  echo "echo I am $other" >$action/$other/say
  echo 'FROM scratch
COPY root /
COPY say /
ENTRYPOINT ["/bin/bash", "/say"]' >$action/$other/Dockerfile
  touch -d @1700000000 $action/$other $action/$other/say $action/$other/Dockerfile
done
`

// runAction gives the hook what GitHub's runner gives it for such an action. The action is cancelled when it waits.
const runAction = `set -u
work=/home/runner/_work
mounts=
for mount in _temp:runner_temp _temp/_github_home:home _temp/_github_workflow:workflow _temp/_runner_file_commands:file_commands app/app:workspace; do
  mounts="$mounts,{\"userProvidedValue\":null,\"sourceVolumePath\":\"$work/${mount%%:*}\",\"targetVolumePath\":\"/github/${mount##*:}\",\"readOnly\":false}"
done
echo >$work/_temp/_runner_file_commands/out
/bullpen/shared/bullpen-agent container-hook <<END &
{"command": "run_container_step", "responseFile": "$work/_temp/_runner_hook_responses/$1.json", "state": {}, "args": {
  "image": null, "dockerfile": "$work/_actions/acme/greet/v1/$2", "entryPointArgs": ["\"two", "words\"", "$3"], "entryPoint": null,
  "workingDirectory": "/github/workspace", "createOptions": null, "registry": null, "portMappings": [], "userMountVolumes": [],
  "environmentVariables": {"GREETING": "from the workflow", "HOME": "/github/home", "GITHUB_OUTPUT": "/github/file_commands/out"},
  "systemMountVolumes": [{"userProvidedValue":null,"sourceVolumePath":"/var/run/docker.sock","targetVolumePath":"/var/run/docker.sock","readOnly":false}$mounts]}}
END
hook=$!
if [ $3 = wait ]; then
  until [ -e $work/app/app/waits ]; do sleep 0.1; done
  kill -TERM $hook
fi
wait $hook
echo "exited with $?"
`

// An action with a Dockerfile runs in a container of its own, which no image registry has and no Docker daemon starts.
func (b *buildNode) buildsAndRunsActions(ctx context.Context) {
	pod := b.pod(ctx, "actions", &v1alpha1.JobContainers{})
	defer func() {
		if b.Failed() {
			b.Logf("buildkit:\n%s", b.log(ctx, pod, runnerpod.ContainerBuildKit))
		}
	}()
	require.Eventually(b, func() bool {
		now, err := b.kube.CoreV1().Pods(b.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		require.NoError(b, err)
		running := 0
		for _, c := range now.Status.ContainerStatuses {
			if c.State.Running != nil && (c.Name == runnerpod.ContainerRunner || c.Name == runnerpod.ContainerBuildKit) {
				running++
			}
		}
		return running == 2
	}, patience, interval, "the pod runs")
	b.exec(ctx, pod, runnerpod.ContainerRunner, anAction)
	run := func(id, file, last string) string {
		return b.exec(ctx, pod, runnerpod.ContainerRunner, fmt.Sprintf("set -- %s %s %s\n%s", id, file, last, runAction))
	}

	said := run("one", "Dockerfile", "now")
	require.Contains(b, said, "said: from the workflow, kept, two words, now, with content")
	require.Contains(b, said, "without what was removed, and made")
	require.Contains(b, said, "has Uid: 0 0 0 0")
	require.Contains(b, said, "has CapEff: 00000000a80425fb", "a container's defaults, without SYS_ADMIN")
	require.Contains(b, said, "has Seccomp: 2")
	require.Contains(b, said, "exited with 7")
	require.Contains(b, b.exec(ctx, pod, runnerpod.ContainerRunner, "cat /home/runner/_work/app/app/written /home/runner/_work/_temp/_runner_file_commands/out"), "content\n\nresult=done")

	require.Contains(b, run("a", "A/Dockerfile", "now"), "I am A\nexited with 0")
	require.Contains(b, run("b", "B/Dockerfile", "now"), "I am B\nexited with 0", "and not what BuildKit has of the other")
	require.Contains(b, run("two", "Dockerfile", "wait"), "exited with 1", "it is cancelled")
	require.Contains(b, run("three", "nofile", "now"), "::error::Action 'acme/greet' can't be built from its nofile: the build has failed (exit code 1).")
	b.leavesNothing(ctx, pod)
	require.NoError(b, b.kube.CoreV1().Pods(b.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	b.exec(ctx, pod, runnerpod.ContainerRunner, ": >/tmp/end")
	require.Eventually(b, func() bool {
		_, err := b.kube.CoreV1().Pods(b.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, interval, "the pod ends with its runner")
}

// leavesNothing of an action's container: no process, and no file.
func (b *buildNode) leavesNothing(ctx context.Context, pod *corev1.Pod) {
	require.Eventually(b, func() bool {
		left := b.exec(ctx, pod, runnerpod.ContainerBuildKit, `echo /var/lib/buildkit/actions/*; for p in /proc/[0-9]*; do while IFS= read -r -d '' arg; do echo "$arg"; done <$p/cmdline; done 2>/dev/null; true`)
		return strings.Contains(left, "/var/lib/buildkit/actions/*") && !slices.Contains(strings.Split(left, "\n"), "guard") && !strings.Contains(left, "entry.sh")
	}, patience, interval, "the containers of the actions are gone")
}
