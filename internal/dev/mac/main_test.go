//go:build linux

package mac_test

import (
	"os"
	"testing"

	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

func TestMain(m *testing.M) { os.Exit(mactest.Main(m.Run)) }
