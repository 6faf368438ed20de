package image

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	cluster := []netip.Prefix{netip.MustParsePrefix("20.5.0.0/16"), netip.MustParsePrefix("2600:1f00::/48")}
	for text, want := range map[string]verdict{
		"140.82.112.34": public, "1.1.1.1": public, "2606:4700::6810:84e5": public, "172.32.0.1": public, "11.0.0.1": public, "64:ff9b::8c52:7022": public,
		"10.0.0.1": private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private, "127.0.0.1": private, "127.9.9.9": private, "::1": private,
		"100.64.0.1": private, "198.18.0.1": private, "fd12:3456::1": private, "fc00::1": private, "240.0.0.1": private, "192.0.2.1": private, "2001:db8::1": private,
		"20.5.1.1": private, "2600:1f00::7": private,
		"::ffff:10.0.0.1": private, "::ffff:127.0.0.1": private, "::ffff:140.82.112.34": public,
		"64:ff9b::a00:1": private, "64:ff9b::7f00:1": private, "64:ff9b::a9fe:a9fe": forbidden,
		"169.254.169.254": forbidden, "169.254.0.1": forbidden, "::ffff:169.254.169.254": forbidden, "fe80::1": forbidden, "fe80::1%eth0": forbidden,
		"fd00:ec2::254": forbidden, "fd20:ce::254": forbidden, "100.100.100.200": forbidden, "168.63.129.16": forbidden, "192.0.0.192": forbidden,
		"0.0.0.0": forbidden, "0.1.2.3": forbidden, "::": forbidden, "::127.0.0.1": forbidden, "224.0.0.1": forbidden, "255.255.255.255": forbidden, "ff02::1": forbidden,
		"2002:a00:1::1": forbidden, "2001::1": forbidden, "64:ff9b:1::1": forbidden, "4000::1": forbidden, "fec0::1": forbidden, "100::1": forbidden,
	} {
		require.Equal(t, want, judge(netip.MustParseAddr(text), cluster), text)
	}
	require.Equal(t, forbidden, judge(netip.Addr{}, nil))
}

func TestMayConnect(t *testing.T) {
	for _, test := range []struct {
		host    string
		named   bool
		address string
		want    bool
	}{
		{"ghcr.io", false, "140.82.112.34", true},
		{"evil.com", false, "10.0.0.1", false},
		{"registry.internal", true, "10.0.0.1", true},
		{"registry.internal", true, "fd12::1", true},
		{"registry.internal", true, "169.254.169.254", false},
		{"registry.internal", true, "127.0.0.1", false},
		{"registry.internal", true, "::1", false},
		{"127.0.0.1", true, "127.0.0.1", true},
		{"127.0.0.1", false, "127.0.0.1", false},
		{"localhost", true, "127.0.0.1", true},
		{"localhost", true, "::1", true},
		{"localhost", false, "::1", false},
		{"127.0.0.1", true, "127.0.0.2", false},
		{"registry.internal", true, "::ffff:127.0.0.1", false},
	} {
		require.Equal(t, test.want, mayConnect(test.host, test.named, netip.MustParseAddr(test.address), nil), "%+v", test)
	}
}
