// Package npm finds the npm packages that tests read. scripts/prerequisites.sh installs them into the cache, by a package-lock.json that is in the
// repository; only Node.js's package manager runs for that, and none of the packages' scripts.
package npm
