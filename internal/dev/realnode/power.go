package realnode

import "fmt"

// Where Debian has these programs.
const (
	dbusProgram   = "/usr/bin/dbus-daemon"
	logindProgram = "/usr/lib/systemd/systemd-logind"
	busSocket     = "/run/dbus/system_bus_socket"
)

// busConfig is a bus of one node, whose programs are all root's.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=` + busSocket + `</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="root"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow send_type="signal"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

// logind lets an inhibitor delay a shutdown for as long as the kubelet asks for. Otherwise the kubelet would write that setting into the
// machine's /etc.
func (l layout) logind() string {
	return fmt.Sprintf("[Login]\nInhibitDelayMaxSec=%d\n", int(l.shutdownGrace.Seconds())+1)
}
