// Package kit gives tests the real parts that the product runs on: a Kubernetes control plane with garbage
// collection, RBAC, TokenReview and the scheduler, started once per test process. (A real Postgres is in the
// postgrestest directory beside it.)
//
// Begin with Main and Cluster:
//
//	func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		cluster := kit.Cluster(t)
//		namespace := cluster.Namespace(t)
//		…
//	}
package kit
