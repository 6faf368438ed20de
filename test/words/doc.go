// Package words holds the repository's English to the terms of its field: it finds wordings that a reader has to read twice in comments, in
// the messages of what ships, in the chart and in the pages, and names what to write instead.
//
// Directories that were written before the rule are in ceilings.txt with what they still have. A ceiling only sinks; a directory that is not
// listed there has none of it. Begin with patterns.go.
package words
