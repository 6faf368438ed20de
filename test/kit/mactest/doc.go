// Package mactest boots model Macs for tests, and ends them with the test.
//
//	mac := mactest.Boot(t)
//	ssh := mac.SSH(t)
//
// Begin with Boot.
package mactest
