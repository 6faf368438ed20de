package steps

import (
	"bytes"
	"encoding/xml"
	"maps"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// nodeArguments are what the node agent is started with.
func nodeArguments(c machost.Config, tart string) []string {
	args := []string{
		BinaryPath, "node", "--sandbox", "tart", "--tart", tart, "--name", c.Node.Name,
		"--bootstrap-kubeconfig", bootstrapFile, "--state-dir", c.Node.StateDir, "--log-file", NodeLog,
	}
	for _, option := range [][2]string{{"--node-ip", c.Node.IP}, {"--cpu", c.Node.CPU}, {"--memory", c.Node.Memory}, {"--min-disk-free", c.Node.MinDiskFree}} {
		if option[1] != "" {
			args = append(args, option[0], option[1])
		}
	}
	if c.Node.ClientCA != "" {
		args = append(args, "--client-ca-file", clientCAFile)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Node.Labels)) {
		args = append(args, "--label", key+"="+c.Node.Labels[key])
	}
	return args
}

// nodePlist renders the launchd job, the same bytes for the same configuration.
//
// AbandonProcessGroup keeps virtual machines alive when the agent ends (NODE-3). UserName is the console's user, who alone may
// run any.
func nodePlist(c machost.Config, user account, tart string) []byte {
	var b bytes.Buffer
	text := func(tag, value string) {
		b.WriteString("<" + tag + ">")
		_ = xml.EscapeText(&b, []byte(value)) // a buffer takes everything
		b.WriteString("</" + tag + ">")
	}
	entry := func(key, value string) {
		b.WriteString("\t")
		text("key", key)
		text("string", value)
		b.WriteString("\n")
	}
	b.WriteString(xml.Header)
	b.WriteString(`<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">` + "\n")
	b.WriteString("<plist version=\"1.0\">\n<dict>\n")
	entry("Label", NodeLabel)
	entry("UserName", user.Name)
	b.WriteString("\t<key>ProgramArguments</key>\n\t<array>\n")
	for _, argument := range nodeArguments(c, tart) {
		b.WriteString("\t\t")
		text("string", argument)
		b.WriteString("\n")
	}
	b.WriteString("\t</array>\n\t<key>EnvironmentVariables</key>\n\t<dict>")
	text("key", "HOME")
	text("string", user.Home)
	b.WriteString("</dict>\n")
	for _, key := range []string{"RunAtLoad", "KeepAlive", "AbandonProcessGroup"} {
		b.WriteString("\t<key>" + key + "</key><true/>\n")
	}
	entry("StandardErrorPath", NodeLog)
	b.WriteString("</dict>\n</plist>\n")
	return b.Bytes()
}
