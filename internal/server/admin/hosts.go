package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// HostWatch is what this replica's watch of the cluster shows of Macs.
type HostWatch interface {
	// Hosts are all Macs as the controller that prepares them has last described them; watched is false while nothing is known of them.
	Hosts() (hosts []adminapi.Host, watched bool)
}

func (a *API) listHosts(w http.ResponseWriter, _ request) error {
	hosts, watched := a.opt.Fleet.Hosts()
	list := adminapi.HostList{Hosts: []adminapi.Host{}, Watched: watched}
	for _, host := range hosts { // a client may count on lists
		if host.Problems == nil {
			host.Problems = []adminapi.Problem{}
		}
		list.Hosts = append(list.Hosts, host)
	}
	slices.SortFunc(list.Hosts, func(a, b adminapi.Host) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
	})
	write(w, http.StatusOK, list)
	return nil
}
