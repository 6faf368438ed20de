package steps

import (
	"bytes"
	"encoding/xml"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// agentIdentity is by what a node agent finds its virtual machines again: the user's home has them, the state directory their records, and the API
// server their pods, by the node's name.
type agentIdentity struct {
	User     string `json:"user"`
	Home     string `json:"home"`
	Node     string `json:"node"`
	StateDir string `json:"stateDir"`
}

func identityOf(c machost.Config, user account) agentIdentity {
	return agentIdentity{User: user.Name, Home: user.Home, Node: c.Node.Name, StateDir: c.Node.StateDir}
}

// change describes the change to another identity.
func (i agentIdentity) change(to agentIdentity) string {
	return fmt.Sprintf("run it as %s, node %s, state directory %s (was: %s, node %s, state directory %s)", to.User, to.Node, to.StateDir, i.User, i.Node, i.StateDir)
}

// formerIdentities are those that launchd may have loaded: as recorded or, by an earlier release, as the job's file has it. None before the first apply.
func formerIdentities(h machost.Host, state agentState) ([]agentIdentity, error) {
	if len(state.Identities) > 0 {
		return state.Identities, nil
	}
	plist, err := h.ReadFile(NodePlist)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []agentIdentity{plistIdentity(plist)}, nil
}

// plistIdentity reads the identity in a job's file as nodePlist renders it. What it does not find is empty, and differs from whatever is wanted.
func plistIdentity(plist []byte) agentIdentity {
	var i agentIdentity
	decoder, before := xml.NewDecoder(bytes.NewReader(plist)), ""
	for {
		token, err := decoder.Token()
		if err != nil { // its end, or no plist
			return i
		}
		text, isText := token.(xml.CharData)
		if !isText || len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		switch before {
		case "UserName":
			i.User = string(text)
		case "HOME":
			i.Home = string(text)
		case "--name":
			i.Node = string(text)
		case "--state-dir":
			i.StateDir = string(text)
		}
		before = string(text)
	}
}
