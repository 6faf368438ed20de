package agent

import "k8s.io/client-go/rest"

var _ rest.Config
