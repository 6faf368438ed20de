package github

import (
	"context"
	"time"

	gh "github.com/google/go-github/v88/github"
)

const (
	opDeliveries    = "listing webhook deliveries"
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

// Deliveries yields the attempts made since then, newest first, until yield returns false. GitHub keeps three days.
func (c *Client) Deliveries(ctx context.Context, since time.Time, yield func(Delivery) bool) error {
	options := &gh.ListCursorOptions{PerPage: pageSize}
	seen := map[string]bool{}
	for {
		var page []*gh.HookDelivery
		var cursor string
		err := c.asApp(ctx, opDeliveries, func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
			page, resp, err = api.Apps.ListHookDeliveries(ctx, options)
			if resp != nil {
				cursor = resp.Cursor
			}
			return resp, err
		})
		if err != nil {
			return err
		}
		for _, one := range page {
			found := delivery(one)
			if found.DeliveredAt.Before(since) || !yield(found) {
				return nil
			}
		}
		if cursor == "" || seen[cursor] {
			return nil
		}
		seen[cursor], options.Cursor = true, cursor
	}
}

func delivery(from *gh.HookDelivery) Delivery {
	return Delivery{
		ID: from.GetID(), GUID: from.GetGUID(), Event: from.GetEvent(), Action: from.GetAction(),
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
				SuspendedAt: one.GetSuspendedAt().Time,
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
