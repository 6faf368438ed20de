package github

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

const (
	hostGitHub = "github.com"
	hostAPI    = "api.github.com"
	// domainGHE is GitHub Enterprise Cloud with data residency: NAME.ghe.com, whose API is api.NAME.ghe.com.
	domainGHE = ".ghe.com"
	// pathServer is where an Enterprise Server has its API.
	pathServer = "/api/v3"
)

// ErrAddress is an address that no API of GitHub can be derived from.
var ErrAddress = errors.New("not an address of GitHub: write the web address or the API's, such as https://github.com, https://NAME.ghe.com or https://HOST/api/v3")

// APIAddress derives the API's URL from any address of a GitHub: the site, a page of it, or the API itself, which stays as it is.
//
//	github.com, https://github.com/acme      → https://api.github.com
//	https://acme.ghe.com                     → https://api.acme.ghe.com
//	https://ghes.example.com, …/api/v3/      → https://ghes.example.com/api/v3
//
// An empty address is GitHub's own. Without a scheme it is https; http stays only for an Enterprise Server, or a stand-in.
func APIAddress(address string) (string, error) {
	address = strings.TrimSpace(address)
	if address == "" {
		return DefaultBaseURL, nil
	}
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	at, err := url.Parse(address)
	if err != nil {
		return "", ErrAddress // the parser's error repeats the address, which may hold a password
	}
	at.Scheme = strings.ToLower(at.Scheme)
	switch {
	case at.Scheme != "https" && at.Scheme != "http", at.Hostname() == "":
		return "", ErrAddress
	case at.User != nil:
		return "", fmt.Errorf("%w; without a user name or password", ErrAddress)
	case at.RawQuery != "" || at.ForceQuery || at.Fragment != "":
		return "", fmt.Errorf("%w; without ? and #", ErrAddress)
	}
	return apiOf(at)
}

// apiOf chooses by the host: GitHub's own hosts have no other path, and no other scheme than https.
func apiOf(at *url.URL) (string, error) {
	host := strings.TrimRight(strings.ToLower(at.Hostname()), ".")
	switch {
	case host == hostGitHub, host == "www."+hostGitHub, host == hostAPI:
		return hosted(hostAPI, at), nil
	case host == "", strings.HasSuffix(host, "."+hostGitHub), host == strings.TrimPrefix(domainGHE, "."), host == "api"+domainGHE:
		return "", fmt.Errorf("%w; %q is none of them", ErrAddress, host)
	case strings.HasSuffix(host, domainGHE):
		return hosted("api."+strings.TrimPrefix(host, "api."), at), nil
	}
	port := at.Port()
	if at.Scheme == "https" && port == "443" || at.Scheme == "http" && port == "80" {
		port = ""
	}
	base := site(at.Scheme, host, port)
	path := strings.TrimRight(at.EscapedPath(), "/")
	if before, _, found := strings.Cut(path+"/", pathServer+"/"); found {
		return base + before + pathServer, nil // a gateway may have it below a path of its own
	}
	if path == "" && strings.HasPrefix(host, "api.") {
		return base, nil // named as an API
	}
	return base + pathServer, nil // what follows the host is a page: an organization, a repository
}

// hosted is the URL of a host of GitHub's own.
func hosted(host string, at *url.URL) string {
	port := at.Port()
	if port == "443" || port == "80" {
		port = ""
	}
	return site("https", host, port)
}

func site(scheme, host, port string) string {
	if strings.Contains(host, ":") { // an IPv6 address
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	return (&url.URL{Scheme: scheme, Host: host}).String()
}
