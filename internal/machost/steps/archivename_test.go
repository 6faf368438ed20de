package steps

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The query of a signed URL grants the right to fetch, and may hold slashes: events once named the archive by it.
func TestArchiveName_HOST6_IsNoPartOfASignature(t *testing.T) {
	for archive, name := range map[string]string{
		"https://store.example/tart/tart.tar.gz?expires=1&signature=c2VjcmV0/bW9yZQ==": "tart.tar.gz",
		"https://store.example/tart.zip":                                               "tart.zip",
		"/Users/ci/tart.tgz":                                                           "tart.tgz",
	} {
		require.Equal(t, name, archiveName(archive))
	}
}
