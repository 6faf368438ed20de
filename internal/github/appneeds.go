package github

// EventWorkflowJob is the one event that the App subscribes to.
const EventWorkflowJob = "workflow_job"

// AppPermission is a permission that the App needs.
type AppPermission struct {
	Name  string // as GitHub's API names it
	Level string // "read" or "write"
	Title string // on the App's settings page
	Use   string // what Bullpen does with it
}

// Names of permissions, as GitHub's API has them.
const (
	PermissionOrganizationRunners = "organization_self_hosted_runners"
	PermissionAdministration      = "administration"
	PermissionActions             = "actions"
	PermissionMetadata            = "metadata"
)

// AppPermissions are those that the App needs. Apps are created with these, and `bullpen doctor` compares with them.
func AppPermissions() []AppPermission {
	return []AppPermission{
		{PermissionOrganizationRunners, "write", "Organization permissions: Self-hosted runners", "register and remove the runners of an organization"},
		{PermissionAdministration, "write", "Repository permissions: Administration", "register and remove the runners of a repository, as accounts of users need"},
		{PermissionActions, "read", "Repository permissions: Actions", "read the state of jobs and runs"},
		{PermissionMetadata, "read", "Repository permissions: Metadata", "list repositories (GitHub adds it to every App)"},
	}
}

// AppEvents are the events that the App subscribes to. Those about installations come without a subscription.
func AppEvents() []string { return []string{EventWorkflowJob} }
