package machost_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// Every field says whether it is of the fleet or of one host, and is, or is not, in the drift hash accordingly. A new field without the tag
// fails here.
func TestDriftHash_EveryFieldIsDeclaredAndCountsAsDeclared(t *testing.T) {
	base := machost.Config{User: "ci", Hostname: "mac-1"}.Default()
	seen := 0
	var ofHosts []string
	var walk func(of reflect.Type, index []int, name string)
	walk = func(of reflect.Type, index []int, name string) {
		for i := range of.NumField() {
			field := of.Field(i)
			at, path := append(append([]int{}, index...), i), name+field.Name
			require.NotEmpty(t, field.Tag.Get("json"), path)
			if field.Type.Kind() == reflect.Struct {
				require.Empty(t, field.Tag.Get("scope"), "%s: its fields say it", path)
				walk(field.Type, at, path+".")
				continue
			}
			seen++
			changed := reflect.New(reflect.TypeFor[machost.Config]()).Elem()
			changed.Set(reflect.ValueOf(base))
			mutate(t, changed.FieldByIndex(at), path)
			hash := changed.Interface().(machost.Config).DriftHash("binary")
			switch field.Tag.Get("scope") {
			case "fleet":
				require.NotEqual(t, base.DriftHash("binary"), hash, "%s is of the fleet: a change of it is drift", path)
			case "host":
				ofHosts = append(ofHosts, path)
				require.Equal(t, base.DriftHash("binary"), hash, "%s is of one host: a change of it is no drift of the fleet", path)
			default:
				require.Fail(t, "undeclared", `%s: say scope:"fleet" or scope:"host"`, path)
			}
		}
	}
	walk(reflect.TypeFor[machost.Config](), nil, "")
	require.GreaterOrEqual(t, seen, 19)
	require.Equal(t, []string{"Hostname", "Node.Name", "Node.IP"}, ofHosts, "no two hosts have the same; all else is the fleet's")
}

// mutate gives a field another value than it has.
func mutate(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	switch v.Interface().(type) {
	case string:
		v.SetString(v.String() + "x")
	case int:
		v.SetInt(v.Int() + 1)
	case bool:
		v.SetBool(!v.Bool())
	case []netip.Prefix:
		v.Set(reflect.ValueOf([]netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}))
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"new": "label"}))
	default:
		require.Fail(t, "unknown type", "%s: teach this test and the hash about %s", path, v.Type())
	}
}

func TestDriftHash_IsOfWhatIsMeant(t *testing.T) {
	left := machost.Config{User: "ci"}
	require.Equal(t, left.DriftHash("b"), left.Default().DriftHash("b"), "a default that is written out is no drift")
	require.NotEqual(t, left.DriftHash("b"), left.DriftHash("c"), "another program renders other files")
	empty := left
	empty.Egress.Allow, empty.Node.Labels = []netip.Prefix{}, map[string]string{}
	require.Equal(t, left.DriftHash("b"), empty.DriftHash("b"))
	one, other := left, left
	one.Node.Labels = map[string]string{"a": "1", "b": "2", "c": "3"}
	other.Node.Labels = map[string]string{"c": "3", "b": "2", "a": "1"}
	require.Equal(t, one.DriftHash("b"), other.DriftHash("b"))
	require.Len(t, left.DriftHash("b"), 64)
}

const ca = `-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIBATAKBggqhkjOPQQDAjANMQswCQYDVQQDEwJjYTAeFw0y
-----END CERTIFICATE-----
`

func TestParseConfig_ReadsWhatPeopleWrite(t *testing.T) {
	c, err := machost.ParseConfig([]byte("user: ci\nhostname: mac-1\negress:\n  allow: [10.1.0.0/16, 'fd00::/8']\nnode: {memory: 12Gi, labels: {a: b}}\n"))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	require.Equal(t, "mac-1", c.Default().Node.Name)
	require.Equal(t, "/Users/ci/bullpen", c.Default().Node.StateDir)
	require.Equal(t, 600, c.Default().DHCPLeaseSeconds)
	require.True(t, c.WantsNode())
	require.False(t, machost.Config{User: "ci"}.WantsNode())
	for want, text := range map[string]string{
		`unknown field "colour"`:       "user: ci\ncolour: red\n",
		`"password"`:                   "user: ci\npassword: x\n",
		`already set`:                  "user: ci\nuser: root\n",
		"egress.allow[1]":              "user: ci\negress: {allow: [10.0.0.0/8, 10.0.0.0/33]}\n",
		"ssh.allowFrom[0]":             "user: ci\nssh: {allowFrom: [everywhere]}\n",
		"dhcpLeaseSeconds: a string":   "user: ci\ndhcpLeaseSeconds: soon\n",
		"reading the configuration":    "[",
		`egress.machines[0]: "" is no`: "user: ci\negress: {machines: [7]}\n",
	} {
		_, err := machost.ParseConfig([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

func TestValidate_SaysEverythingThatIsWrongAtOnce(t *testing.T) {
	require.NoError(t, machost.Config{User: "ci"}.Validate())
	for _, free := range []string{"10%", "0.5%", "50%", "20Gi", "10%,20Gi", "20Gi,10%"} {
		require.NoError(t, machost.Config{User: "ci", Node: machost.Node{MinDiskFree: free}}.Validate(), free)
	}
	for _, free := range []string{"0%", "51%", "%", "0", "10%,", ",", "10%,5%", "1Gi,2Gi", "10%,1Gi,2Gi", "20m", "10%,20m"} {
		require.ErrorContains(t, machost.Config{User: "ci", Node: machost.Node{MinDiskFree: free}}.Validate(), "node.minDiskFree", free)
	}
	require.NoError(t, machost.Config{User: "ci", Hostname: "mac-1"}.Default().Validate())
	bad := machost.Config{
		User: "first.last", Hostname: "Mac 1", DHCPLeaseSeconds: 1,
		Tart:   machost.Tart{Archive: "http://x/tart.tar.gz", SHA256: "abc"},
		Egress: machost.Egress{Machines: []netip.Prefix{netip.MustParsePrefix("fd00::/64"), {}}, Allow: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16")}},
		SSH:    machost.SSH{AllowFrom: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
		Node: machost.Node{Name: "A", IP: "here", Labels: map[string]string{"a b": "c", "ok": "not ok"}, StateDir: "state", CPU: "many",
			Memory: "-1Gi", MinDiskFree: "60%", ClientCA: ca},
		Logs: machost.Logs{MaxMB: -1, Keep: 1000},
	}
	var problems *machost.ConfigError
	require.ErrorAs(t, bad.Validate(), &problems)
	var fields []string
	for _, p := range problems.Problems {
		fields = append(fields, p.Field)
	}
	require.ElementsMatch(t, []string{
		"user", "hostname", "dhcpLeaseSeconds", "tart.sha256", "tart.archive", "egress.machines[0]", "egress.machines[1]", "egress.allow[0]",
		"ssh.allowFrom[0]", "node.name", "node.ip", "node.labels", "node.labels", "node.stateDir", "node.cpu", "node.memory", "node.minDiskFree", "node.clientCA", "logs.maxMB", "logs.keep",
	}, fields)
	require.ErrorContains(t, problems, "did you mean 10.1.0.0/16 or 10.1.2.3/32?")
}

func TestValidate_RefusesWhatCouldDoHarm(t *testing.T) {
	digest := strings.Repeat("a", 64)
	for want, c := range map[string]machost.Config{
		"user":                            {User: "root"},
		"contains a user name or a passw": {User: "ci", Tart: machost.Tart{Archive: "https://me:pw@x/tart.tar.gz", SHA256: digest}},
		"tart.archive":                    {User: "ci", Tart: machost.Tart{Archive: "https://x/tart.pkg", SHA256: digest}},
		"requires tart.archive":           {User: "ci", Tart: machost.Tart{SHA256: digest}},
		"node.stateDir":                   {User: "ci", Node: machost.Node{StateDir: "/Users/ci/../root"}},
		"without spaces":                  {User: "ci", Node: machost.Node{StateDir: "/Users/ci/my state"}},
		"of up to 100":                    {User: "ci", Node: machost.Node{StateDir: "/" + strings.Repeat("x", 100)}},
		"\"ci\\nroot\"":                   {User: "ci\nroot"},
		"node.clientCA":                   {User: "ci", Node: machost.Node{ClientCA: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}},
	} {
		require.ErrorContains(t, c.Validate(), want, fmt.Sprint(c))
	}
	err := machost.Config{User: "ci", Tart: machost.Tart{Archive: "https://me:pw@x/tart.tar.gz", SHA256: digest}}.Validate()
	require.NotContains(t, err.Error(), "pw")
	for _, good := range []string{"https://x/a/tart.tar.gz?signature=1", "/tmp/tart.zip", "https://x/tart.tgz"} {
		require.NoError(t, machost.Config{User: "ci", Tart: machost.Tart{Archive: good, SHA256: digest}}.Validate(), good)
	}
}
