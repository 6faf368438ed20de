// Package poolertest runs a real PgBouncer before the PostgreSQL of a test. Without PgBouncer the tests fail with the sentence that says how to
// install it; they are never skipped.
//
// For tests only. Begin with Start.
package poolertest
