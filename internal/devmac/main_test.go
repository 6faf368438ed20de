//go:build linux

package devmac_test

import (
	"os"
	"testing"

	"github.com/bullpen-ci/bullpen/internal/devmac/devmactest"
)

func TestMain(m *testing.M) { os.Exit(devmactest.Main(m.Run)) }
