package fleet

import "fmt"

// GroupAccess is what GitHub says of a runner group and one repository.
type GroupAccess struct {
	ID                       int64
	Name                     string
	Visibility               string // all, selected or private
	AllowsPublicRepositories bool
	RestrictedToWorkflows    bool
	Serves                   bool // the repository is among those that may use the group
}

// Obstacle says which setting of the group keeps its runners from the repository's jobs; empty when none does.
func (g GroupAccess) Obstacle(repository string) string {
	group := "runner group " + g.Name
	switch {
	case g.Serves && g.RestrictedToWorkflows:
		return group + " is restricted to certain workflows"
	case g.Serves:
		return ""
	case g.Visibility == "selected" && !g.AllowsPublicRepositories:
		return fmt.Sprintf("%s is open to selected repositories only, and %s is none of them, or is public, which the group does not allow", group, repository)
	case g.Visibility == "selected":
		return fmt.Sprintf("%s is open to selected repositories only, and %s is none of them", group, repository)
	default:
		return fmt.Sprintf("%s does not allow public repositories, and %s is public", group, repository)
	}
}
