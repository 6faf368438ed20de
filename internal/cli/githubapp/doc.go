// Package githubapp registers a GitHub App for an installation of Bullpen, by GitHub's manifest flow, and stores its credentials in the
// Secret that the chart reads, or in files. It needs a user with a browser: GitHub has no other way to register an App. Begin with Run;
// manifest.go says what is registered, callback.go talks to the browser, store.go keeps the credentials.
package githubapp
