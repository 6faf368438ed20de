package arcmigration

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// daemon is a Docker daemon that a pod's author, or the chart, has written into the pod, and what belongs to it alone.
type daemon struct {
	container *value
	// externals are init containers that give it the runner's own programs.
	externals []*value
}

// daemonNames are what people call the container of a Docker daemon.
var daemonNames = []string{"dind", "docker", "dockerd", "docker-daemon", "docker-dind", "docker-in-docker", "dind-daemon", "dind-rootless"}

var (
	// dindImage knows Docker's own image with a daemon, of any version, variant and mirror, and images that are called so.
	dindImage = regexp.MustCompile(`(^|[/:._-])dind([/:._@-]|$)`)
	// dockerImage is Docker's own image, whose default command is a daemon unless it is that of the client.
	dockerImage = regexp.MustCompile(`(^|/)docker(:[^/]*)?(@.*)?$`)
	runsDaemon  = regexp.MustCompile(`(^|[\s/])dockerd(-entrypoint\.sh|-rootless\.sh)?($|\s)`)
)

// findDaemon looks for a Docker daemon among the containers of a pod: beside the runner, or as an init container that stays. Where the runner is
// configured to use one in its pod, and no container is known for one, it is the privileged one. runners are where the runner's variables are.
func findDaemon(pod *value, runners []*value, others ...*value) *daemon {
	lists := append([]*value{pod.get("containers"), pod.get("initContainers")}, others...)
	var found, privileged *daemon
	for _, list := range lists {
		for _, container := range list.elements() {
			switch {
			case found == nil && container.isDaemon():
				found = &daemon{container: container}
			case privileged == nil && container.privileged() && container.get("name").peek() != containerRunner:
				privileged = &daemon{container: container}
			}
		}
	}
	if found == nil && localDocker(runners) != nil {
		found = privileged
	}
	if found == nil {
		return nil
	}
	for _, container := range pod.get("initContainers").elements() {
		if container != found.container && container.copiesExternals() {
			found.externals = append(found.externals, container)
		}
	}
	return found
}

// commandLine is the command of a container and its arguments.
func (v *value) commandLine() []string {
	var found []string
	for _, list := range []*value{v.get("command"), v.get("args")} {
		for _, word := range list.elements() {
			found = append(found, word.peek())
		}
	}
	return found
}

func (v *value) isDaemon() bool {
	name, image := v.get("name").peek(), v.get("image").peek()
	if name == containerRunner {
		return false
	}
	known := slices.Contains(daemonNames, name)
	return name == "dind" || dindImage.MatchString(image) || slices.ContainsFunc(v.commandLine(), runsDaemon.MatchString) ||
		known && (v.privileged() || dockerImage.MatchString(image) && !strings.Contains(image, "cli"))
}

func (v *value) privileged() bool {
	return scalarOf(v.get("securityContext", "privileged")) == true
}

// localHost is an address of a Docker daemon in the pod itself.
var localHost = regexp.MustCompile(`^(unix://|tcp://(localhost|127\.0\.0\.1|\[?::1\]?)(:|$))`)

// localDocker is the variable that leads a runner to a Docker daemon in its own pod.
func localDocker(runners []*value) *value {
	for _, runner := range runners {
		for _, variable := range runner.get("env").elements() {
			if variable.get("name").peek() == "DOCKER_HOST" && localHost.MatchString(variable.get("value").peek()) {
				return variable
			}
		}
	}
	return nil
}

// noDaemon says that a runner is led to a Docker daemon that is not in its pod.
func (c *conversion) noDaemon(runners ...*value) {
	if variable := localDocker(runners); variable != nil {
		c.todo(variable, "it leads jobs to a Docker daemon in the pod, and none of its containers is one", "remove it, or convert with containerMode dind, whose daemon jobs find by themselves")
	}
}

func (v *value) copiesExternals() bool {
	return v.get("name").peek() == "init-dind-externals" || strings.Contains(strings.Join(v.commandLine(), " "), runnerFolder+"/externals")
}

const (
	brings    = "the Docker daemon is Bullpen's own container"
	ownDaemon = "the Docker daemon's container is Bullpen's own; only its image can be chosen"
	ownImage  = "build an image from docker:28-dind that has it, such as in /etc/docker/daemon.json, and name it in dind.image"
)

var (
	// plainDaemonWord is a part of a command that says what Bullpen does as well: start a daemon that listens at its socket.
	plainDaemonWord = regexp.MustCompile(`^(dockerd|/?([\w.-]+/)*dockerd-entrypoint\.sh|(--host|-H)(=?unix://.*)?|unix://.*|--group(=.*)?|\$\(DOCKER_GROUP_GID\)|123)$`)
	// tcpDaemonWord has it listen at an address, as jobs without the socket need it.
	tcpDaemonWord = regexp.MustCompile(`^((--host|-H)?=?tcp://.*|--tls(=.*|verify.*|cacert.*|cert.*|key.*)?)$`)

	daemonVariables = []string{"DOCKER_GROUP_GID", "DOCKER_TLS_CERTDIR", "DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"}
	clientVariables = []string{"DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_TLS_CERTDIR", "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS"}

	dataPaths = []string{"/var/lib/docker", "/home/rootless/.local/share/docker"}
)

// takeDaemon takes a daemon and what belongs to it out of a pod, and sets dind in what becomes of it. Without one there is the chart's, and
// what the pod has for it is taken out alone. runners are where the runner's variables and mounts are written.
func (c *conversion) takeDaemon(d *daemon, pod *value, runners []*value, into fields) {
	dind := fields{}
	if d != nil {
		c.daemonContainer(d.container, pod, dind)
		for _, container := range d.externals {
			c.unneeded(container, "Bullpen gives its Docker daemon the runner's own programs itself")
			container.told = true
		}
	}
	for _, runner := range runners {
		c.client(runner)
		for _, mount := range runner.get("volumeMounts").elements() { // of a daemon in the runner's own container
			if slices.Contains(dataPaths, path.Clean(mount.get("mountPath").peek())) {
				c.daemonMount(mount, pod, dind)
			}
		}
	}
	for _, volume := range pod.get("volumes").elements() {
		if slices.Contains(dindVolumes, volume.get("name").peek()) && volume.get("emptyDir") != nil {
			c.unneeded(volume, brings+", and has volumes of its own")
		}
	}
	into["dind"] = dind
}

func (c *conversion) daemonContainer(v, pod *value, dind fields) {
	v.get("name").use()
	switch image := v.get("image"); {
	case image.peek() == "docker:dind" || image.peek() == "docker:28-dind":
		c.unneeded(image, "the daemon's image has a default")
	case image != nil:
		set(dind, "image", c.text(image))
		if strings.Contains(image.peek(), "rootless") {
			c.todo(image, "a daemon without root needs other settings than Bullpen gives it", "name an image with a daemon that runs as root, which a microVM keeps off the node")
		}
	}
	c.daemonWords(v)
	for _, variable := range v.get("env").elements() {
		if name := variable.get("name").peek(); slices.Contains(daemonVariables, name) {
			c.unneeded(variable, "Bullpen's daemon listens at its socket, and "+name+" is for others")
			continue
		}
		c.drop(variable, "the Docker daemon's container has no environment that can be chosen", ownImage)
	}
	c.drop(v.get("resources"), "the Docker daemon's container cannot be given these resources", "add them to the runner's: in a microVM they share them")
	c.unneeded(v.get("securityContext", "privileged"), "Bullpen's Docker daemon is privileged as well, in a microVM")
	for _, field := range []string{"restartPolicy", "startupProbe", "readinessProbe", "livenessProbe", "ports"} {
		c.unneeded(v.get(field), brings+": the runner starts when it is there")
	}
	for _, mount := range v.get("volumeMounts").elements() {
		c.daemonMount(mount, pod, dind)
	}
	c.drop(v, ownDaemon, "see whether jobs need it; if so, "+ownImage)
	v.told = true
}

// daemonResources converts the resources of a daemon's container that a pool's has as well.
func (p *scaleSetParts) daemonResources() fields {
	made := fields{}
	if p.daemon == nil {
		return made
	}
	s := poolSchema().at("template", "dind", "resources")
	for _, list := range []string{"requests", "limits"} {
		kept := fields{}
		for _, name := range []string{"cpu", "memory", "ephemeral-storage"} {
			set(kept, name, p.keep(p.daemon.container.get("resources", list, name), s.at(list, name)))
		}
		set(made, list, kept)
	}
	p.from("spec.template.dind.resources", p.daemon.container.get("resources"))
	return made
}

// daemonWords judges each part of the daemon's command: what Bullpen does as well, and what is lost.
func (c *conversion) daemonWords(v *value) {
	const plain = brings + ", and listens at its socket by itself"
	for _, list := range []*value{v.get("command"), v.get("args")} {
		if !slices.ContainsFunc(list.elements(), func(word *value) bool { return !plainDaemonWord.MatchString(word.peek()) }) {
			c.unneeded(list, plain)
			continue
		}
		for _, word := range list.elements() {
			switch text := word.peek(); {
			case plainDaemonWord.MatchString(text):
				c.unneeded(word, plain)
			case tcpDaemonWord.MatchString(text):
				c.find(Changed, word, "Bullpen's Docker daemon listens at its socket alone, and jobs find it by DOCKER_HOST", "")
				word.tell()
			default:
				c.drop(word, "Bullpen starts the Docker daemon with arguments of its own", ownImage)
			}
		}
	}
}

// daemonMount judges what is mounted into the daemon's container.
func (c *conversion) daemonMount(mount, pod *value, dind fields) {
	at := path.Clean(mount.get("mountPath").peek())
	volume := volumeNamed(pod, mount.get("name").peek())
	switch {
	case slices.Contains(dataPaths, at):
		empty := volume.get("emptyDir")
		size := empty.get("sizeLimit")
		if given, err := resource.ParseQuantity(size.text()); err == nil && given.Cmp(resource.MustParse("1Gi")) >= 0 {
			dind["storage"] = size.text()
			c.find(Changed, size, "it is the daemon's storage now, dind.storage", "")
		}
		if empty == nil {
			c.drop(mount, "the daemon's images and containers are in a volume that goes with the pod (dind.storage), and not in one of your own", "")
			return
		}
		c.unneeded(mount, "the daemon's images and containers are in a volume of Bullpen's (dind.storage)")
	case ofTheDaemon(at) || workPath(at) || at == runnerFolder+"/externals" || at == legacyFolder:
		c.unneeded(mount, brings+", with its socket and the folder where jobs work")
	default:
		c.drop(mount, "nothing can be mounted into the Docker daemon's container", ownImage)
	}
}

// text is a scalar as it is written.
func (v *value) text() string {
	if n, ok := number(scalarOf(v)); ok {
		return resource.NewQuantity(int64(n), resource.BinarySI).String()
	}
	return v.peek()
}

// ofTheDaemon says whether a daemon's socket or its certificates are usually there.
func ofTheDaemon(at string) bool {
	return at == "/var/run" || at == "/run" || below(at, "/var/run/docker") || below(at, "/run/docker") || below(at, "/run/user") ||
		at == "/var/run/docker.sock" || at == "/run/docker.sock" || below(at, "/certs")
}

func volumeNamed(pod *value, name string) *value {
	for _, volume := range pod.get("volumes").elements() {
		if volume.get("name").peek() == name {
			return volume
		}
	}
	return nil
}

// dindVolumes are the names that the chart gives what belongs to its Docker daemon.
var dindVolumes = []string{"dind-sock", "dind-externals", "dind-etc", "dind-home"}

// client takes out of the runner's container what leads it to a daemon.
func (c *conversion) client(runner *value) {
	certificates := ""
	for _, variable := range runner.get("env").elements() {
		name, given := variable.get("name").peek(), variable.get("value").peek()
		if !slices.Contains(clientVariables, name) {
			continue
		}
		if name == "DOCKER_CERT_PATH" {
			certificates = path.Clean(given)
		}
		if name == "DOCKER_HOST" && !strings.HasPrefix(given, "unix://") {
			c.find(Changed, variable, "jobs find the Docker daemon at its socket: Bullpen sets DOCKER_HOST to unix:///var/run/docker.sock", "")
			variable.tell()
			continue
		}
		c.unneeded(variable, "Bullpen sees to it: the runner starts when its Docker daemon is there, and finds it by DOCKER_HOST")
	}
	for _, mount := range runner.get("volumeMounts").elements() {
		at := path.Clean(mount.get("mountPath").peek())
		if ofTheDaemon(at) || certificates != "" && at == certificates || slices.Contains(dindVolumes, mount.get("name").peek()) {
			c.unneeded(mount, brings+", and its socket is mounted where jobs look for it")
		}
	}
}

// orphans takes out volumes that were mounted only by what has been taken out: such a volume has no use any more, and what is in it, if
// anything, is lost. keepers are the containers that are carried over; others have been, or will be, left out.
func (c *conversion) orphans(pod *value, keepers ...*value) {
	gone := unmounted(pod, keepers...)
	for _, volume := range pod.get("volumes").elements() {
		switch {
		case !gone[volume.get("name").peek()] || volume.settled() || volume.told:
		case volume.get("emptyDir") != nil:
			c.unneeded(volume, "only what is not carried over, or Bullpen has itself, mounts the volume")
		default:
			c.drop(volume, onlyLeftOut, "see whether what is in it is needed")
		}
	}
}

const onlyLeftOut = "only what is not carried over mounts the volume, and so nothing does any more"

// unmounted are the names of volumes that something in the pod mounts, and none of the containers that are carried over.
func unmounted(pod *value, keepers ...*value) map[string]bool {
	gone := map[string]bool{}
	mounts := []*value{pod.get("dockerVolumeMounts"), pod.get("volumeMounts")}
	for _, list := range containerLists(pod) {
		mounts = append(mounts, mountsOf(list.elements())...)
	}
	for _, list := range mounts {
		for _, mount := range list.elements() {
			gone[mount.get("name").peek()] = true
		}
	}
	for _, list := range mountsOf(keepers) {
		for _, mount := range list.elements() {
			if !mount.settled() {
				delete(gone, mount.get("name").peek())
			}
		}
	}
	return gone
}

func containerLists(pod *value) []*value {
	return []*value{pod.get("containers"), pod.get("initContainers"), pod.get("sidecarContainers")}
}

// keptContainers are those of a pod that have not been taken out.
func keptContainers(pod *value) []*value {
	var kept []*value
	for _, list := range containerLists(pod) {
		for _, container := range list.elements() {
			if !container.told {
				kept = append(kept, container)
			}
		}
	}
	return kept
}
