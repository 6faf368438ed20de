package serviceproxy

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func service(name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func slice(of string, port string, number int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: of + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		Ports:      []discoveryv1.EndpointPort{{Name: &port, Port: &number}}, Endpoints: endpoints,
	}
}

func endpoint(ip string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{
		Ready: ptr.To(ready), Serving: ptr.To(serving), Terminating: ptr.To(terminating),
	}}
}

func TestRoutesOf(t *testing.T) {
	http := corev1.ServicePort{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}
	at := netip.MustParseAddrPort("10.111.0.7:80")
	for name, test := range map[string]struct {
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		local   map[string]string
		want    map[netip.AddrPort]route
	}{
		"ready endpoints, each once and in order": {
			service("s", "10.111.0.7", http),
			[]*discoveryv1.EndpointSlice{
				slice("s", "http", 8080, endpoint("10.112.0.9", true, true, false), endpoint("10.112.0.2", true, true, false), endpoint("10.112.0.3", false, false, false)),
				slice("s", "http", 8080, endpoint("10.112.0.2", true, true, false)),
				slice("other", "http", 8080, endpoint("10.112.0.4", true, true, false)),
				slice("s", "metrics", 9090, endpoint("10.112.0.2", true, true, false)),
			}, nil,
			map[netip.AddrPort]route{at: {Service: "ns/s", Backends: []string{"10.112.0.2:8080", "10.112.0.9:8080"}}},
		},
		"those that end, but only if none is ready": {
			service("s", "10.111.0.7", http),
			[]*discoveryv1.EndpointSlice{slice("s", "http", 8080, endpoint("10.112.0.2", false, true, true), endpoint("10.112.0.3", false, false, true))}, nil,
			map[netip.AddrPort]route{at: {Service: "ns/s", Backends: []string{"10.112.0.2:8080"}}},
		},
		"one that ends beside one that is ready": {
			service("s", "10.111.0.7", http),
			[]*discoveryv1.EndpointSlice{slice("s", "http", 8080, endpoint("10.112.0.2", false, true, true), endpoint("10.112.0.3", true, true, false))}, nil,
			map[netip.AddrPort]route{at: {Service: "ns/s", Backends: []string{"10.112.0.3:8080"}}},
		},
		"nobody":       {service("s", "10.111.0.7", http), nil, nil, map[netip.AddrPort]route{}},
		"headless":     {service("s", "None", http), []*discoveryv1.EndpointSlice{slice("s", "http", 8080, endpoint("10.112.0.2", true, true, false))}, nil, map[netip.AddrPort]route{}},
		"not over TCP": {service("s", "10.111.0.7", corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}), []*discoveryv1.EndpointSlice{slice("s", "dns", 53, endpoint("10.112.0.2", true, true, false))}, nil, map[netip.AddrPort]route{}},
		"on this machine": {
			service("s", "10.111.0.7", http), nil, map[string]string{"ns/s": "127.0.0.1:5432"},
			map[netip.AddrPort]route{at: {Service: "ns/s", Backends: []string{"127.0.0.1:5432"}, Local: true}},
		},
	} {
		require.Equal(t, test.want, routesOf([]*corev1.Service{test.service}, test.slices, test.local), name)
	}
}

func TestResolve(t *testing.T) {
	services := []*corev1.Service{service("web", "10.111.0.7"), service("headless", "None")}
	for name, want := range map[string]string{
		"web.ns.svc.cluster.local.": "10.111.0.7", "web.ns.svc.": "10.111.0.7", "WEB.NS.SVC.CLUSTER.LOCAL": "10.111.0.7",
		"web.other.svc.": "", "web.ns.": "", "web.": "", "headless.ns.svc.": "", "example.com.": "", "": "", "svc.": "", ".svc": "",
		"web.ns.svc.cluster.local.ns.svc.cluster.local.": "",
	} {
		address, found := resolve(name, "cluster.local", services)
		require.Equal(t, want != "", found, name)
		if found {
			require.Equal(t, want, address.String(), name)
		}
	}
}

func query(t testing.TB, name string, kind dnsmessage.Type) []byte {
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := message.Pack()
	require.NoError(t, err)
	return packed
}

func known(name string) (netip.Addr, bool) {
	return netip.MustParseAddr("10.111.0.7"), name == "web.ns.svc."
}

func TestAnswer(t *testing.T) {
	ask := func(name string, kind dnsmessage.Type) dnsmessage.Message {
		reply, err := answer(query(t, name, kind), known)
		require.NoError(t, err)
		var message dnsmessage.Message
		require.NoError(t, message.Unpack(reply))
		require.EqualValues(t, 7, message.ID)
		require.True(t, message.Response)
		require.Len(t, message.Questions, 1)
		return message
	}
	found := ask("web.ns.svc.", dnsmessage.TypeA)
	require.Equal(t, dnsmessage.RCodeSuccess, found.RCode)
	require.Len(t, found.Answers, 1)
	require.Equal(t, [4]byte{10, 111, 0, 7}, found.Answers[0].Body.(*dnsmessage.AResource).A)
	six := ask("web.ns.svc.", dnsmessage.TypeAAAA)
	require.Equal(t, dnsmessage.RCodeSuccess, six.RCode, "the name exists; it has no such address")
	require.Empty(t, six.Answers)
	require.Equal(t, dnsmessage.RCodeNameError, ask("example.com.", dnsmessage.TypeA).RCode)
	_, err := answer([]byte("nonsense"), known)
	require.Error(t, err)
	reply, err := answer(query(t, "web.ns.svc.", dnsmessage.TypeA), known)
	require.NoError(t, err)
	_, err = answer(reply, known)
	require.Error(t, err, "a reply is no query")
}

func FuzzAnswer(f *testing.F) {
	f.Add(query(f, "web.ns.svc.", dnsmessage.TypeA))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, data []byte) {
		reply, err := answer(data, known)
		if err != nil {
			return
		}
		var message dnsmessage.Message
		require.NoError(t, message.Unpack(reply))
	})
}
