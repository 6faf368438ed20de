package machost

// Secrets are what nobody may see (HOST-6). They reach a host on standard input alone.
type Secrets struct {
	// Password is the user's, for automatic login and for the first sudo. Empty: both must have been set up, and are only checked.
	Password Secret
	// BootstrapKubeconfig is how the node agent asks for its first certificate. Empty: it has one.
	BootstrapKubeconfig Secret
}

// Secret is a text that does not print: not by fmt, not by JSON, not by slog.
type Secret struct{ text string }
