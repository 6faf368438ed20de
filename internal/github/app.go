package github

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const (
	opDeliveries    = "listing webhook deliveries"
	opPayload       = "reading a webhook delivery"
	opRedeliver     = "asking for a redelivery"
	opInstallations = "listing installations"
)

// Delivery is one attempt of GitHub's to deliver a webhook to the App. Attempts of one event share its GUID.
type Delivery struct {
	ID             int64
	GUID           string
	Event          string
	Action         string
	DeliveredAt    time.Time
	Redelivery     bool
	StatusCode     int // what our server answered; zero when it could not be reached
	InstallationID int64
	RepositoryID   int64
}

// DeliveryPage is a part of the list of deliveries, usually newest first. GitHub keeps three days.
type DeliveryPage struct {
	Deliveries []Delivery
	Next       string // the cursor of the next, older page; empty at the end
	ETag       string // of this page; empty when GitHub gives none
	Unchanged  bool   // the page is still what it was when it had the ETag that was sent; nothing else is filled in
}

// DeliveryPage reads the page at the cursor, or the newest one when the cursor is empty. With the ETag of an earlier
// read GitHub says whether the page has changed since; "unchanged" costs nothing of the App's rate limit.
func (c *Client) DeliveryPage(ctx context.Context, cursor, etag string) (DeliveryPage, error) {
	var page DeliveryPage
	query := url.Values{"per_page": {strconv.Itoa(pageSize)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	err := c.asApp(ctx, opDeliveries, func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		req, err := api.NewRequest(ctx, http.MethodGet, "app/hook/deliveries?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		if etag != "" {
			req.Header.Set("If-None-Match", etag)
		}
		var list []*gh.HookDelivery
		resp, err := api.Do(req, &list)
		if resp != nil && resp.Response != nil && resp.StatusCode == http.StatusNotModified && etag != "" {
			page.Unchanged = true
			return resp, nil
		}
		if err == nil && list == nil { // an empty body must not read as "no deliveries"
			err = errNoList
		}
		if err == nil {
			page.read(list, resp)
		}
		return resp, err
	})
	return page, err
}

func (p *DeliveryPage) read(list []*gh.HookDelivery, resp *gh.Response) {
	p.Next, p.ETag = clean(resp.Cursor), clean(resp.Header.Get("ETag"))
	for _, one := range list {
		p.Deliveries = append(p.Deliveries, delivery(one))
	}
}

// Payload is what a delivery carried.
type Payload struct {
	GUID  string
	Event string
	Body  []byte
}

// Payload reads what an attempt was to deliver. Only GitHub can have answered: it was asked by TLS and as the App, so
// the payload needs no signature beside it (NET-6).
func (c *Client) Payload(ctx context.Context, deliveryID int64) (Payload, error) {
	var found *gh.HookDelivery
	err := c.asApp(ctx, opPayload, func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		found, resp, err = api.Apps.GetHookDelivery(ctx, deliveryID)
		return resp, err
	})
	if err != nil {
		return Payload{}, err
	}
	if found.GetID() != deliveryID || found.GetRequest() == nil || found.GetRequest().RawPayload == nil {
		return Payload{}, fmt.Errorf("%s: %w: the response has no payload of that delivery", opPayload, fleet.ErrUncertain)
	}
	return Payload{GUID: clean(found.GetGUID()), Event: clean(found.GetEvent()), Body: *found.GetRequest().RawPayload}, nil
}

// AppRate is what GitHub last said of the limit for calls of the App itself; false when it has not yet.
func (c *Client) AppRate() (fleet.RateState, bool) { return c.own.rates.of(classRead) }

func delivery(from *gh.HookDelivery) Delivery {
	return Delivery{
		ID: from.GetID(), GUID: clean(from.GetGUID()), Event: clean(from.GetEvent()), Action: clean(from.GetAction()),
		DeliveredAt: from.GetDeliveredAt().Time, Redelivery: from.GetRedelivery(), StatusCode: from.GetStatusCode(),
		InstallationID: from.GetInstallationID(), RepositoryID: from.GetRepositoryID(),
	}
}

// Redeliver asks GitHub to deliver an attempt's payload again. It arrives later, as a webhook.
func (c *Client) Redeliver(ctx context.Context, deliveryID int64) error {
	return c.asApp(ctx, opRedeliver, func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		_, resp, err := api.Apps.RedeliverHookDelivery(ctx, deliveryID)
		if isAccepted(err) {
			err = nil // 202 is how it says yes
		}
		return resp, err
	})
}

// Installation of the App.
type Installation struct {
	ID          int64
	Account     Account
	SuspendedAt time.Time // zero when not suspended
	// Rights that the account has accepted. They may be fewer than the App asks for.
	Rights Rights
}

// Installations lists where the App is installed.
func (c *Client) Installations(ctx context.Context) ([]Installation, error) {
	var all []Installation
	options := &gh.ListOptions{PerPage: pageSize}
	for {
		var page []*gh.Installation
		next := 0
		err := c.asApp(ctx, opInstallations, func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
			page, resp, err = api.Apps.ListInstallations(ctx, options)
			if resp != nil {
				next = resp.NextPage
			}
			if err == nil && page == nil { // an empty body must not read as "no installations"
				err = errNoList
			}
			return resp, err
		})
		if err != nil {
			return nil, err
		}
		for _, one := range page {
			account := one.GetAccount()
			found := Installation{
				ID:          one.GetID(),
				Account:     Account{ID: account.GetID(), Login: account.GetLogin(), Type: account.GetType()},
				SuspendedAt: one.GetSuspendedAt().Time, Rights: rightsOf(one.GetPermissions(), one.Events),
			}
			found.Account.clean()
			all = append(all, found)
		}
		if next <= options.Page {
			return all, nil
		}
		options.Page = next
	}
}
