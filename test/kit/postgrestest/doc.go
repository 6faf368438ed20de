// Package postgrestest gives every test a fresh, real PostgreSQL database: one private server for the test process,
// started by the first test that asks (or the server at BULLPEN_DATABASE_URL), one migrated template, and a copy of it
// per test. Without PostgreSQL the tests fail with the sentence that says what to install; they are never skipped.
//
// For tests only. Begin with Main, which TestMain has to call, and NewDatabase.
package postgrestest
