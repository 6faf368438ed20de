package chart

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

func TestValues_ThatCannotBeRightAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ values, says string }{
		"no App":                          {"{}", "github.appID is required"},
		"a certificate alone":             {least + "database: {tls: {clientSecret: {name: own}}}", "requires database.tls.caSecret"},
		"a private key":                   {"github: {appID: 1, privateKey: '-----BEGIN'}", "additional properties 'privateKey' not allowed"},
		"a webhook secret":                {"github: {appID: 1, secret: {webhookSecret: x}}", "additional properties 'webhookSecret' not allowed"},
		"a database URL":                  {least + "database: {url: 'postgres://u:p@h/d'}", "additional properties 'url' not allowed"},
		"a URL for a Secret's name":       {least + "database: {secret: {name: 'postgres://u:p@h/d'}}", "/database/secret/name"},
		"a key for a Secret's key":        {"github: {appID: 1, secret: {privateKeyKey: '-----BEGIN RSA PRIVATE KEY-----'}}", "/github/secret/privateKeyKey"},
		"a password in GitHub's URL":      {"github: {appID: 1, url: 'https://u:p@github.example.com/api/v3'}", "/github/url"},
		"a password in the environment":   {least + "server: {env: [{name: HTTPS_PROXY, value: 'http://u:p@proxy'}]}", "/server/env/0/value"},
		"a password in a proxy's URL":     {least + "proxy: {https: 'http://u:p@proxy:3128'}", "/proxy/https"},
		"a proxy without a scheme":        {least + "proxy: {https: 'proxy:3128'}", "/proxy/https"},
		"a proxy twice":                   {least + "proxy: {https: 'http://proxy:3128', secret: {name: proxy}}", "replaces proxy.http and proxy.https"},
		"an address for a range":          {"github: {appID: 1, cidrs: [10.1.2.3]}", "/github/cidrs/0"},
		"another scheme of GitHub":        {"github: {appID: 1, url: 'ssh://git@github.com'}", "/github/url"},
		"the product's own environment":   {least + "server: {env: [{name: BULLPEN_DATABASE_URL, value: x}]}", "/server/env/0/name"},
		"a provider without a client":     {least + "console: {url: 'https://a.example.com', oidc: {issuer: 'https://login.example.com'}}", "requires console.oidc.clientID"},
		"a provider without a way back":   {least + "console: {oidc: {issuer: 'https://login.example.com', clientID: a}}", "and console.url"},
		"a provider in the clear":         {least + "console: {oidc: {issuer: 'http://login.example.com'}}", "/console/oidc/issuer"},
		"a client's secret":               {least + "console: {oidc: {clientSecret: abc}}", "/console/oidc/clientSecret"},
		"an unknown key":                  {least + "replicas: 3", "additional properties 'replicas' not allowed"},
		"an unknown key within":           {least + "server: {replica: 3}", "additional properties 'replica' not allowed"},
		"App id as text":                  {"github: {appID: twelve}", "/github/appID"},
		"no replicas":                     {least + "server: {replicas: 0}", "/server/replicas"},
		"another way of webhooks":         {"github: {appID: 1, webhooks: pull}", "/github/webhooks"},
		"a duration without a unit":       {least + "server: {recovery: {patience: '5'}}", "/server/recovery/patience"},
		"a namespace that is none":        {least + "runners: {namespace: Runners}", "/runners/namespace"},
		"runners beside the server":       {least + "runners: {namespace: bullpen-system}", "because runners execute untrusted code"},
		"a pool's name with a dot":        {least + "pools: {a.b: {platform: linux, labels: [a], resources: {}, template: {image: x}}}", "a.b"},
		"a pool's name that is too long":  {least + "pools: {a23456789-123456789-123456789-123456789-123456789-1: {platform: linux, labels: [a], resources: {}, template: {image: x}}}", "invalid propertyName"},
		"a pool without a label":          {least + "pools: {a: {platform: linux, labels: [], resources: {}, template: {image: x}}}", "/pools/a/labels"},
		"a whole RunnerPool":              {least + "pools: {a: {metadata: {name: a}, spec: {}}}", "/pools/a"},
		"no microVMs at all":              {least + "microVMRuntimeClasses: []", "/microVMRuntimeClasses"},
		"a class that ends the policy":    {least + `microVMRuntimeClasses: ["kata'] + ['runc"]`, "/microVMRuntimeClasses/0"},
		"an ingress without a host":       {least + "ingress: {enabled: true}", "/ingress"},
		"an ingress for nothing":          {"github: {appID: 1, webhooks: poll}\ningress: {enabled: true, host: a.example.com}", "requires github.webhooks: push"},
		"no time to finish":               {least + "server: {preStopSeconds: 30}", "must be at least 55"},
		"a cap that nobody would look at": {least + "server: {defaultLimits: {linux: jobs-per-repository=5}}", "set server.repositoryCaps to true"},
		"a URL for Macs without scheme":   {least + "macHosts: {dispatchURL: dispatch.example.com}", "/macHosts/dispatchURL"},
		"a password in a URL for Macs":    {least + "macHosts: {dispatchURL: 'https://u:p@dispatch.example.com'}", "/macHosts/dispatchURL"},
		"another type for dispatch":       {least + "dispatchService: {type: ExternalName}", "/dispatchService/type"},
		"a tag with a space":              {least + "image: {tag: 'v1 v2'}", "/image/tag"},
		"a digest that is none":           {least + "image: {digest: latest}", "/image/digest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helmchart.Render(helmchart.Release{Values: values(t, test.values)})
			require.ErrorContains(t, err, test.says)
		})
	}
}
