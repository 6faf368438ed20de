// Package retention removes rows that are no longer needed: which rows, after how long, and how many per batch.
//
// Policy is pure; Pass is what the passes run. Begin with Policy.Rules.
package retention
