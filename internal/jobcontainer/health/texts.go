package health

import (
	"fmt"
	"time"
)

// Texts of GitHub's runner (ContainerOperationProvider.cs), so that what users search for is found.

// Poll returns how long GitHub's runner waits before it checks a starting service again: 2, 4, 8, 16, then 32 seconds. polls is
// the number of earlier waits.
func Poll(polls int) time.Duration {
	return min(2*time.Second<<min(max(polls, 0), 4), 32*time.Second)
}

// WaitingText is printed before each wait for a service.
func WaitingText(service string, wait time.Duration) string {
	return fmt.Sprintf("%s service is starting, waiting %d seconds before checking again.", service, int(wait/time.Second))
}

// HealthyText is printed when a service has become healthy.
func HealthyText(service string) string { return service + " service is healthy." }

// FailedText is the error of a service that did not become healthy.
func FailedText(image string) string { return "Failed to initialize container " + image }

// AllFailedText is the error of the job after FailedText of each.
func AllFailedText() string { return "One or more containers failed to start." }
