package jobcontainer

// Command is the command of each container that is added to a pod: the agent's guard, which takes everything else through its
// socket. The name is the container's.
func Command(name string) []string { return []string{Binary, "guard", "--name", name} }
