// Package registeredtest has a GitHub in memory for tests of the controllers of self-registering runners: registrations, what
// is answered to their removal, and faults on demand. It stands in for package registration, and knows no HTTP: the table of
// GitHub's own answers is tested there.
package registeredtest
