// Package e2e runs the built binary on this machine, with everything real but GitHub: `bullpen demo`, and `bullpen up`
// and `bullpen down` with what goes wrong around them. It holds tests only. It sees what a user sees. Begin with
// TestDemo.
package e2e
