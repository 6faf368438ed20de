// Package retention removes what nobody will ask for again: which rows, after how long, and how many at a time.
//
// Policy is pure; Pass is what the passes run. Begin with Policy.Rules.
package retention
