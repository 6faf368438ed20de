// Package descriptions holds the server and the stand-in for GitHub to GitHub's own descriptions: each payload that they allow is posted to the
// server, and each answer of the stand-in is validated. The descriptions are npm packages of GitHub's, which scripts/prerequisites.sh installs and
// package-lock.json pins; nothing of them is kept here. Begin with payloads_test.go and answers_test.go.
package descriptions
