// Package fleet is the vocabulary of Bullpen: jobs, claims, accounts, scopes and registrations, the states they
// pass through with the table of every legal transition, and the errors that cross package borders.
//
// Begin with job.go and claim.go: the two tables there are what the database repeats as CHECK constraints and what the
// tests walk pair by pair.
package fleet
