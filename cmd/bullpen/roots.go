package main

// Mozilla's root certificates, for systems that have none: the image is such a one. They are used only if the system
// itself has no bundle, so one that is mounted where a system has its own, or that SSL_CERT_FILE names, replaces them.
import _ "golang.org/x/crypto/x509roots/fallback"
