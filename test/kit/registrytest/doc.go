// Package registrytest runs a real registry, the CNCF distribution (tools/registry), with basic or token authentication, and
// pushes images to it. A Front stands between it and the client under test: it records requests, and lets a test replace single
// responses, as a hostile or broken registry would give them. A DNS answers names of a test.
//
// For tests only. Begin with Start.
package registrytest
