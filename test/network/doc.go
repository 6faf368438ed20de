// Package network verifies the purpose of the chart's two network policies: on a live API server, with the product's own objects, rolling
// the server changes nothing for a runner mid-job (NET-1), and such a runner does not reach the API that hands out jobs (NET-2). Whether a
// network plug-in enforces the policies is not shown here: docs/guides/network.md says how to see that. It holds tests only. Begin with
// TestPolicies_NET1_ARolloutChangesNothingForAPodMidJob.
package network
