package machost

// Payload is all that an apply is told. It reaches a host on standard input alone, because of the secrets in it (HOST-6).
type Payload struct {
	Config  Config
	Secrets Secrets
}
