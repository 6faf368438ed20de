package chart

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

const cluster = "localhost,127.0.0.1,::1,.svc,.cluster.local,$(KUBERNETES_SERVICE_HOST)"

// variablesOf are a container's variables: their values, or SECRET/KEY.
func variablesOf(t *testing.T, container map[string]any) map[string]string {
	t.Helper()
	found := map[string]string{}
	list, _ := container["env"].([]any)
	for i := range list {
		name, _ := at(t, list, i, "name").(string)
		require.NotContains(t, found, name, "it is there twice, which server-side apply refuses")
		if value, is := at(t, list, i, "value").(string); is {
			found[name] = value
			continue
		}
		found[name] = at(t, list, i, "valueFrom", "secretKeyRef", "name").(string) + "/" + at(t, list, i, "valueFrom", "secretKeyRef", "key").(string)
	}
	return found
}

func egressArgs(args any) (found []string) {
	for _, arg := range texts(args) {
		if strings.HasPrefix(arg, "--runner-") && !strings.HasPrefix(arg, "--runner-namespace=") {
			found = append(found, arg)
		}
	}
	return found
}

// R7: one set of values brings the server, the controller and runners to GitHub.
func TestProxy_R7_NET12_IsEveryPartsAndNoPasswordIsInAPod(t *testing.T) {
	objects := render(t, helmchart.Release{}, least+"proxy: {http: 'http://proxy.example.com:3128', https: 'http://proxy.example.com:3129', noProxy: [ghes.example.com, '*.internal']}\n")
	direct := cluster + ",ghes.example.com,.internal"
	for _, part := range []string{"server", "controller"} {
		require.Equal(t, map[string]string{
			"HTTP_PROXY": "http://proxy.example.com:3128", "HTTPS_PROXY": "http://proxy.example.com:3129", "NO_PROXY": direct,
		}, variablesOf(t, container(t, objects, part)), part)
	}
	require.Equal(t, []string{
		"--runner-http-proxy=http://proxy.example.com:3128", "--runner-https-proxy=http://proxy.example.com:3129", "--runner-no-proxy=" + direct,
	}, egressArgs(container(t, objects, "controller")["args"]))

	objects = render(t, helmchart.Release{}, least+"proxy: {secret: {name: proxy}}\n")
	for _, part := range []string{"server", "controller"} {
		require.Equal(t, map[string]string{"HTTP_PROXY": "proxy/http", "HTTPS_PROXY": "proxy/https", "NO_PROXY": cluster}, variablesOf(t, container(t, objects, part)), part)
	}
	require.Equal(t, []string{"--runner-http-proxy-from=proxy/http", "--runner-https-proxy-from=proxy/https", "--runner-no-proxy=" + cluster},
		egressArgs(container(t, objects, "controller")["args"]))

	objects = render(t, helmchart.Release{}, least+"proxy: {secret: {name: proxy, httpKey: ''}}\nrunners: {proxy: false}\nserver: {traces: {endpoint: 'http://collector.monitoring:4318'}}\n")
	require.Equal(t, map[string]string{"HTTPS_PROXY": "proxy/https", "NO_PROXY": cluster + ",collector.monitoring"}, variablesOf(t, container(t, objects, "server")))
	require.Empty(t, egressArgs(container(t, objects, "controller")["args"]))

	objects = render(t, helmchart.Release{}, least+"proxy: {https: 'http://a:1'}\nserver: {env: [{name: https_proxy, value: 'http://b:2'}, {name: NO_PROXY, value: x}]}\n")
	require.Equal(t, map[string]string{"https_proxy": "http://b:2", "NO_PROXY": "x"}, variablesOf(t, container(t, objects, "server")), "its own variables win")

	for _, objects := range [][]map[string]any{{container(t, render(t, helmchart.Release{}, least), "server"), container(t, render(t, helmchart.Release{}, least), "controller")}} {
		for _, c := range objects {
			require.Nil(t, c["env"])
			require.Empty(t, egressArgs(c["args"]))
		}
	}
}

func TestGitHubCA_R7_IsEveryParts(t *testing.T) {
	const ca = "github: {appID: 1, url: 'https://ghes.example.com', caSecret: {name: github-ca}}\n"
	source := map[string]any{"secret": map[string]any{"name": "github-ca", "items": []any{map[string]any{"key": "ca.crt", "path": "ca.crt"}}}}
	sources := func(text, part string) []any {
		t.Helper()
		volumes, _ := at(t, find(t, render(t, helmchart.Release{}, text), "Deployment bullpen-system/bullpen-"+part), "spec", "template", "spec", "volumes").([]any)
		for i := range volumes {
			if at(t, volumes, i, "name") == "github" {
				found, _ := at(t, volumes, i, "projected", "sources").([]any)
				return found
			}
		}
		return nil
	}
	const file = "--github-ca-file=/etc/bullpen/github/ca.crt"
	objects := render(t, helmchart.Release{}, ca)
	require.Contains(t, texts(container(t, objects, "server")["args"]), file)
	require.Contains(t, texts(container(t, objects, "server")["args"]), "--github-url=https://ghes.example.com")
	require.Contains(t, sources(ca, "server"), any(source))
	require.NotContains(t, texts(container(t, objects, "controller")["args"]), file, "it does not connect to GitHub")
	require.Empty(t, sources(ca, "controller"))
	require.Equal(t, []string{"--runner-ca-from=github-ca/ca.crt"}, egressArgs(container(t, objects, "controller")["args"]))

	for name, more := range map[string]string{"with the App": "selfRegistering: {enabled: true}\n", "with credentials of teams": "selfRegistering: {enabled: true, useApp: false}\n"} {
		controller := container(t, render(t, helmchart.Release{}, ca+more), "controller")
		require.Contains(t, texts(controller["args"]), file, name)
		require.Contains(t, sources(ca+more, "controller"), any(source), name)
		require.Len(t, controller["volumeMounts"], 2, name)
	}
	require.Len(t, sources(ca+"selfRegistering: {enabled: true, useApp: false}\n", "controller"), 1, "and not the App's key")
	require.Empty(t, egressArgs(container(t, render(t, helmchart.Release{}, ca+"runners: {githubCA: false}\n"), "controller")["args"]))
}

// R7: runners reach a GitHub and a proxy at private addresses where the values say them, and the notes say where they do not.
func TestNetworkPolicy_R7_LeadsToAPrivateGitHub(t *testing.T) {
	type rule struct {
		cidrs []string
		ports []int64
	}
	added := func(text string) (rules []rule) {
		t.Helper()
		egress := func(text string) []any {
			list, _ := at(t, find(t, render(t, helmchart.Release{}, text), "NetworkPolicy bullpen-runners/runners-default-deny"), "spec", "egress").([]any)
			return list
		}
		usual := len(egress(least))
		for _, one := range egress(text)[usual:] {
			var r rule
			to, _ := at(t, one, "to").([]any)
			for i := range to {
				r.cidrs = append(r.cidrs, at(t, to, i, "ipBlock", "cidr").(string))
			}
			ports, _ := at(t, one, "ports").([]any)
			for i := range ports {
				require.Equal(t, "TCP", at(t, ports, i, "protocol"))
				r.ports = append(r.ports, number(t, at(t, ports, i, "port")))
			}
			rules = append(rules, r)
		}
		return rules
	}
	github := func(more string) string { return "github: {appID: 1, " + more + "}\n" }
	for name, c := range map[string]struct {
		values string
		wanted []rule
	}{
		"an address":                {github("url: 'https://10.1.2.3/api/v3'"), []rule{{[]string{"10.1.2.3/32"}, []int64{443, 22}}}},
		"an address with a port":    {github("url: 'https://10.1.2.3:8443'"), []rule{{[]string{"10.1.2.3/32"}, []int64{8443, 443, 22}}}},
		"an address without scheme": {github("url: 10.1.2.3"), []rule{{[]string{"10.1.2.3/32"}, []int64{443, 22}}}},
		"plain http":                {github("url: 'http://10.1.2.3'"), []rule{{[]string{"10.1.2.3/32"}, []int64{80, 443, 22}}}},
		"IPv6":                      {github("url: 'https://[fd00::1]'"), []rule{{[]string{"fd00::1/128"}, []int64{443, 22}}}},
		"a name and its ranges":     {github("url: 'https://ghes.example.com', cidrs: [10.1.0.0/16, 'fd00::/64']"), []rule{{[]string{"10.1.0.0/16", "fd00::/64"}, []int64{443, 22}}}},
		"a name":                    {github("url: 'https://ghes.example.com'"), nil},
		"a proxy's address":         {least + "proxy: {https: 'http://10.9.9.9:3128', http: 'http://10.9.9.9:3129'}\n", []rule{{[]string{"10.9.9.9/32"}, []int64{3129, 3128}}}},
		"a proxy's ranges":          {least + "proxy: {https: 'http://proxy:3128', cidrs: [10.9.0.0/24]}\n", []rule{{[]string{"10.9.0.0/24"}, []int64{3128}}}},
		"a proxy in a Secret":       {least + "proxy: {secret: {name: proxy}, cidrs: [10.9.0.0/24]}\n", []rule{{[]string{"10.9.0.0/24"}, nil}}},
		"a proxy of others":         {least + "proxy: {https: 'http://10.9.9.9:3128'}\nrunners: {proxy: false}\n", nil},
		"both, and more": {github("url: 'https://10.1.2.3'") + "proxy: {https: 'http://10.9.9.9:3128'}\nnetworkPolicy: {additionalEgress: [{to: [{ipBlock: {cidr: 10.7.0.0/16}}]}]}\n",
			[]rule{{[]string{"10.1.2.3/32"}, []int64{443, 22}}, {[]string{"10.9.9.9/32"}, []int64{3128}}, {[]string{"10.7.0.0/16"}, nil}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.wanted, added(c.values)) })
	}
}

func number(t *testing.T, value any) int64 {
	t.Helper()
	if n, is := value.(float64); is {
		return int64(n)
	}
	n, is := value.(int64)
	require.True(t, is, "%v is no number", value)
	return n
}

func notes(t *testing.T, text string) string {
	t.Helper()
	manifests, err := helmchart.Render(helmchart.Release{Values: values(t, text)})
	require.NoError(t, err)
	for _, manifest := range manifests {
		if strings.HasSuffix(manifest.Path, "NOTES.txt") {
			return manifest.Content
		}
	}
	return ""
}

func TestNotes_R7_SayWhatRunnersMayNotReachAndWhichSecretsAreMissing(t *testing.T) {
	const doubt = "Runners can reach public addresses only"
	for name, text := range map[string]string{
		"GitHub's own": least, "data residency": "github: {appID: 1, url: 'https://acme.ghe.com'}\n", "an address": "github: {appID: 1, url: 'https://10.1.2.3'}\n",
		"ranges": "github: {appID: 1, url: 'https://ghes.example.com', cidrs: [10.0.0.0/24]}\n", "no policy": "github: {appID: 1, url: 'https://ghes.example.com'}\nnetworkPolicy: {enabled: false}\n",
	} {
		require.NotContains(t, notes(t, text), doubt, name)
	}
	said := notes(t, "github: {appID: 1, url: 'https://ghes.example.com:8443/api/v3', caSecret: {name: github-ca}}\nproxy: {secret: {name: proxy}}\n")
	require.Contains(t, said, doubt)
	require.Contains(t, said, "- ghes.example.com: set github.cidrs")
	require.Contains(t, said, "- the proxy: set proxy.cidrs")
	require.Contains(t, said, "github-ca: ca.crt; also in bullpen-runners")
	require.Contains(t, said, "proxy: http, https; also in bullpen-runners")
}
