package main

// Mozilla's root certificates, for systems without any, such as the image. They are used only if the system itself has no bundle: one that
// is mounted where a system has its own, or that SSL_CERT_FILE names, replaces them.
import _ "golang.org/x/crypto/x509roots/fallback"
