package steps

import (
	"fmt"

	"howett.net/plist"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// agentIdentity is by what a node agent finds its virtual machines again: the user's home has them, the state directory their records, and the API
// server their pods, by the node's name.
type agentIdentity struct {
	User, Home, Node, StateDir string
}

func identityOf(c machost.Config, user account) agentIdentity {
	return agentIdentity{User: user.Name, Home: user.Home, Node: c.Node.Name, StateDir: c.Node.StateDir}
}

// change describes the change to another identity.
func (i agentIdentity) change(to agentIdentity) string {
	return fmt.Sprintf("run it as %s, node %s, state directory %s (was: %s, node %s, state directory %s)", to.User, to.Node, to.StateDir, i.User, i.Node, i.StateDir)
}

// formerIdentity is that of the job's file, the only one that launchd may have loaded. There is none before the first apply.
func formerIdentity(h machost.Host) (former agentIdentity, found bool, err error) {
	content, err := h.ReadFile(NodePlist)
	if isMissing(err) {
		return agentIdentity{}, false, nil
	}
	if err != nil {
		return agentIdentity{}, false, err
	}
	return plistIdentity(content), true, nil
}

// plistIdentity reads the identity in a job's file as nodePlist renders it. What it does not find is empty, and differs from whatever is wanted.
func plistIdentity(content []byte) agentIdentity {
	var job struct {
		UserName             string
		ProgramArguments     []string
		EnvironmentVariables map[string]string
	}
	if _, err := plist.Unmarshal(content, &job); err != nil {
		return agentIdentity{}
	}
	i := agentIdentity{User: job.UserName, Home: job.EnvironmentVariables["HOME"]}
	for at, argument := range job.ProgramArguments[:max(len(job.ProgramArguments)-1, 0)] {
		switch value := job.ProgramArguments[at+1]; argument {
		case "--name":
			i.Node = value
		case "--state-dir":
			i.StateDir = value
		}
	}
	return i
}
