package openapi

import _ "embed"

//go:embed openapi.yaml
var document []byte

// Document is the description, in YAML.
func Document() []byte { return append([]byte(nil), document...) }
