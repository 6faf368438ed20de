// Package github is the forge as Bullpen uses it: webhooks in (signature, decoding) and REST calls out (JIT registrations,
// runners, jobs, webhook deliveries, installations), as a GitHub App.
//
// It translates: everything it returns is a value of this package or of fleet, and every failure is one of fleet's errors,
// so that no other package has to know an HTTP status. Begin with client.go for calls out and webhook.go for events in.
//
// # No call waits for a rate limit
//
// A refused request comes back at once as a *fleet.RateLimitedError with the time to retry; while a limit is known to hold,
// requests that count against it are not sent at all. The usual middlewares sleep inside the call (the secondary limiter of
// go-github-ratelimit re-sends afterwards, with a body that was read already) or know one bucket for everything (go-github
// counts a mint against "core", so that an empty registration bucket would also stop removals). So both are left out, and
// rates.go keeps what GitHub says per installation and resource.
//
// The same error comes of what we bound ourselves, per installation (discipline.go): circuit.go stops requests to one that
// fails, pace.go spends no more points a minute than GitHub allows, and the number of concurrent requests is bounded.
// Sweeps yield to mints, and all to removals and control reads. etags.go asks only for what has changed. clock.go dates the
// App's tokens by GitHub's clock.
package github
