package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// egressFlags say how runners connect to GitHub: through which proxies, and which CA they trust. Secrets are of the runners' namespace.
type egressFlags struct {
	http, https, no             string
	httpFrom, httpsFrom, caFrom string
}

func (f *egressFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.http, "runner-http-proxy", "", "HTTP proxy URL of runners; for one with a password use --runner-http-proxy-from")
	set.StringVar(&f.https, "runner-https-proxy", "", "HTTPS proxy URL of runners; for one with a password use --runner-https-proxy-from")
	set.StringVar(&f.no, "runner-no-proxy", "", "hosts that runners connect to without a proxy, separated by commas")
	set.StringVar(&f.httpFrom, "runner-http-proxy-from", "", "SECRET/KEY with the HTTP proxy URL, in the runners' namespace")
	set.StringVar(&f.httpsFrom, "runner-https-proxy-from", "", "SECRET/KEY with the HTTPS proxy URL, in the runners' namespace")
	set.StringVar(&f.caFrom, "runner-ca-from", "", "SECRET/KEY with CA certificates (PEM) that runners trust in addition to their image's, in the runners' namespace")
}

// options is nil where runners connect directly, so that their templates stay what they were.
func (f *egressFlags) options() (*runnerpod.Egress, error) {
	if (*f == egressFlags{}) {
		return nil, nil //nolint:nilnil // directly
	}
	egress := runnerpod.Egress{NoProxy: f.no}
	var errs [3]error
	egress.HTTPProxy, errs[0] = runnerProxy("runner-http-proxy", f.http, f.httpFrom)
	egress.HTTPSProxy, errs[1] = runnerProxy("runner-https-proxy", f.https, f.httpsFrom)
	egress.CA, errs[2] = secretKey("runner-ca-from", f.caFrom)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if f.no != "" && egress.HTTPProxy == (runnerpod.Proxy{}) && egress.HTTPSProxy == (runnerpod.Proxy{}) {
		return nil, errors.New("--runner-no-proxy needs a proxy: --runner-https-proxy or --runner-https-proxy-from")
	}
	return &egress, nil
}

// runnerProxy reads a proxy's flags. No error repeats a URL: it may hold a password.
func runnerProxy(flag, address, from string) (runnerpod.Proxy, error) {
	if address != "" && from != "" {
		return runnerpod.Proxy{}, fmt.Errorf("--%s and --%s-from exclude each other: give one of them", flag, flag)
	}
	if address != "" {
		at, err := url.Parse(address)
		switch {
		case err != nil, at.Host == "", at.Scheme != "http" && at.Scheme != "https":
			return runnerpod.Proxy{}, fmt.Errorf("--%s must be a URL such as http://proxy.example.com:3128", flag)
		case at.User != nil: // NET-12
			return runnerpod.Proxy{}, fmt.Errorf("--%s has a user name or password, which all readers of pods can see. Store the URL in a Secret, and use --%s-from", flag, flag)
		}
	}
	key, err := secretKey(flag+"-from", from)
	return runnerpod.Proxy{URL: address, From: key}, err
}

func secretKey(flag, text string) (runnerpod.SecretKey, error) {
	if text == "" {
		return runnerpod.SecretKey{}, nil
	}
	secret, key, found := strings.Cut(text, "/")
	if !found || secret == "" || key == "" || strings.Contains(key, "/") {
		return runnerpod.SecretKey{}, fmt.Errorf("--%s must be SECRET/KEY, the name of a Secret and of a key in it, such as proxy/https", flag)
	}
	return runnerpod.SecretKey{Secret: secret, Key: key}, nil
}
