package image

import (
	"fmt"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// Reason classifies why an image was not resolved. It is short and fixed, so it may be the label of a metric.
type Reason string

// The reasons.
const (
	InvalidName        Reason = "InvalidName"        // the name cannot be parsed
	NotPermitted       Reason = "NotPermitted"       // the pool's images do not include it
	NotFound           Reason = "NotFound"           // the registry has no such image
	CredentialsMissing Reason = "CredentialsMissing" // it needs credentials, and none were given for its registry
	CredentialsRefused Reason = "CredentialsRefused" // the registry refused those that were given
	PlatformMissing    Reason = "PlatformMissing"    // it has no variant for the platform
	NotAnImage         Reason = "NotAnImage"         // it is an artifact of another kind, or damaged
	TimedOut           Reason = "TimedOut"           // the registry did not respond in time
	RateLimited        Reason = "RateLimited"        // the registry limits requests (429)
	Unreachable        Reason = "Unreachable"        // no such host, no connection, or a broken one
	AddressRefused     Reason = "AddressRefused"     // the registry has an address that the pool does not permit
	CertificateInvalid Reason = "CertificateInvalid" // its certificate is not trusted
	RegistryFailed     Reason = "RegistryFailed"     // it responds with an error of its own (5xx)
	ResponseInvalid    Reason = "ResponseInvalid"    // it sends what no registry may send: a wrong digest, too much, endless redirects
	Busy               Reason = "Busy"               // too many images are being resolved for the tenant
)

// Error says why an image was not resolved. Error() is a sentence for the log of the job that wants the image: it contains no
// secret, no address of the cluster's network, and nothing that a registry wrote.
type Error struct {
	Reason     Reason
	Image      string        // as the workflow names it, printable
	Registry   string        // host[:port]; empty if the name cannot be parsed
	RetryAfter time.Duration // of RateLimited: what the registry asked for; 0: it did not say
	Detail     string        // more for the controller's log: a status, an address. No secret

	sentence string
}

func (e *Error) Error() string { return e.sentence }

// Temporary reports whether the same request may succeed later.
func (e *Error) Temporary() bool {
	switch e.Reason {
	case TimedOut, RateLimited, Unreachable, RegistryFailed, Busy:
		return true
	}
	return false
}

func invalidName(image, why string) *Error {
	image = printable(image)
	return &Error{Reason: InvalidName, Image: image, sentence: fmt.Sprintf("Image '%s' is not a valid image name: %s.", image, why)}
}

// failure is an Error about an image whose name was parsed. The sentence's %[1]s is the image, %[2]s its registry; args follow.
func failure(reason Reason, image string, name imagename.Name, sentence string, args ...any) *Error {
	image = printable(image)
	return &Error{
		Reason: reason, Image: image, Registry: name.Registry,
		sentence: fmt.Sprintf(sentence, append([]any{image, name.Registry}, args...)...),
	}
}

func platformMissing(image string, name imagename.Name, wanted Platform, found []string) *Error {
	list := "none"
	if len(found) > 0 {
		list = strings.Join(found, ", ")
	}
	return failure(PlatformMissing, image, name, "Image '%[1]s' has no %[3]s variant (found: %[4]s).", wanted, list)
}

// ConflictError says that two credentials were given for one repository, of which the kubelet could use only one.
type ConflictError struct {
	Registry   string
	Repository string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("Two different credentials for registry '%s' are given for images of the repository '%s'. Use the same credentials for all of them.",
		e.Registry, e.Repository)
}
