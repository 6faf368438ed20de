package hook

import "encoding/json"

// Command is what the runner asks for.
type Command string

// The commands of GitHub's runner (HookInput.cs).
const (
	PrepareJob       Command = "prepare_job"
	RunScriptStep    Command = "run_script_step"
	RunContainerStep Command = "run_container_step"
	CleanupJob       Command = "cleanup_job"
)

// Input is one call of the hook. Of its arguments, only those of its command are set; CleanupJob has none.
type Input struct {
	Command      Command
	ResponseFile string          // absolute; the runner created it, empty
	State        json.RawMessage // an object: what a hook returned last in this job; nil: nothing yet
	Prepare      PrepareJobArgs
	Script       ScriptStepArgs
	Step         Container // of RunContainerStep
	Ignored      []string  // fields that are not known, as args.container.name
}

// PrepareJobArgs are the arguments of PrepareJob.
type PrepareJobArgs struct {
	Container *Container  `json:"container"` // nil: the job has services only
	Services  []Container `json:"services"`  // in the workflow's order, without names
}

// ScriptStepArgs are the arguments of RunScriptStep. All paths are those in the job container.
type ScriptStepArgs struct {
	EntryPoint           string            `json:"entryPoint"`
	EntryPointArgs       []string          `json:"entryPointArgs"` // arguments, split at spaces: see options.Join
	EnvironmentVariables map[string]string `json:"environmentVariables"`
	PrependPath          []string          `json:"prependPath"` // directories to search before those of PATH, the first first
	WorkingDirectory     string            `json:"workingDirectory"`
}

// Container is a job container, a service, or the container of a step. The runner's null is the zero value.
type Container struct {
	Image                string            `json:"image"`          // as in the workflow, without docker://; empty with a Dockerfile
	Dockerfile           string            `json:"dockerfile"`     // a path on the runner; container steps only
	EntryPoint           string            `json:"entryPoint"`     // one program; empty: the image's
	EntryPointArgs       []string          `json:"entryPointArgs"` // a string, split at spaces, with its quotes: see options.Join
	WorkingDirectory     string            `json:"workingDirectory"`
	CreateOptions        string            `json:"createOptions"` // `options:` of the workflow
	Registry             *Registry         `json:"registry"`
	EnvironmentVariables map[string]string `json:"environmentVariables"`
	PortMappings         []string          `json:"portMappings"` // as in the workflow: 8080:80/tcp
	SystemMountVolumes   []Mount           `json:"systemMountVolumes"`
	UserMountVolumes     []Mount           `json:"userMountVolumes"` // `volumes:` of the workflow
}

// Registry has the credentials to pull an image with.
type Registry struct {
	Username  string `json:"username"`
	Password  string `json:"password"`
	ServerURL string `json:"serverUrl"` // the registry's host; empty: Docker Hub
}

// Mount is a volume. Paths of sources are those on the runner.
type Mount struct {
	UserProvidedValue string `json:"userProvidedValue"` // as in the workflow, if it is given there
	Source            string `json:"sourceVolumePath"`  // a path or a volume's name; empty: an anonymous volume
	Target            string `json:"targetVolumePath"`
	ReadOnly          bool   `json:"readOnly"`
}

// Parse reads the JSON of a call. Errors are *SyntaxError, *FieldError or *CommandError.
func Parse(data []byte) (Input, error) {
	root, err := decode(data)
	if err != nil {
		return Input{}, err
	}
	r := &reader{}
	top := r.object("", root)
	input := Input{Command: Command(top.text("command", required)), ResponseFile: top.text("responseFile", required), State: top.raw("state")}
	switch input.Command {
	case PrepareJob:
		args := top.nested("args")
		if container := args.nullable("container"); container != nil {
			parsed := container.container(required)
			input.Prepare.Container = &parsed
		}
		for _, service := range args.objects("services") {
			input.Prepare.Services = append(input.Prepare.Services, service.container(required))
		}
		args.tolerate()
	case RunScriptStep:
		args := top.nested("args")
		input.Script = ScriptStepArgs{EntryPoint: args.text("entryPoint", required), EntryPointArgs: args.texts("entryPointArgs"),
			EnvironmentVariables: args.environment("environmentVariables"), PrependPath: args.texts("prependPath"), WorkingDirectory: args.text("workingDirectory", optional)}
		args.tolerate()
	case RunContainerStep:
		args := top.nested("args")
		input.Step = args.container(optional)
		if input.Step.Image == "" && input.Step.Dockerfile == "" {
			r.fail(args.name("image"), "and dockerfile are missing")
		}
	case CleanupJob:
		top.nested("args").tolerate()
	default:
		if r.err == nil {
			return Input{}, &CommandError{Command: string(input.Command)}
		}
	}
	top.tolerate()
	if r.err != nil {
		return Input{}, r.err
	}
	input.Ignored = r.ignored
	return input, nil
}

func (o object) container(image need) Container {
	c := Container{
		Image: o.text("image", image), Dockerfile: o.text("dockerfile", optional), EntryPoint: o.text("entryPoint", optional), EntryPointArgs: o.texts("entryPointArgs"),
		WorkingDirectory: o.text("workingDirectory", optional), CreateOptions: o.text("createOptions", optional), EnvironmentVariables: o.environment("environmentVariables"),
		PortMappings: o.texts("portMappings"), SystemMountVolumes: o.mounts("systemMountVolumes"), UserMountVolumes: o.mounts("userMountVolumes"),
	}
	if registry := o.nullable("registry"); registry != nil {
		c.Registry = &Registry{Username: registry.text("username", required), Password: registry.text("password", optional), ServerURL: registry.text("serverUrl", optional)}
		registry.refuse()
	}
	o.tolerate()
	return c
}

func (o object) mounts(name string) []Mount {
	var mounts []Mount
	for _, mount := range o.objects(name) {
		mounts = append(mounts, Mount{UserProvidedValue: mount.text("userProvidedValue", optional), Source: mount.text("sourceVolumePath", optional),
			Target: mount.text("targetVolumePath", required), ReadOnly: mount.flag("readOnly")})
		mount.refuse()
	}
	return mounts
}
