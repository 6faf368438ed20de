package chartjobs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Test asks each URL until it answers 200 OK, and says so on out.
func Test(ctx context.Context, client *http.Client, urls []string, every time.Duration, out io.Writer) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for _, url := range urls {
		for {
			err := ask(ctx, client, url)
			if err == nil {
				fmt.Fprintf(out, "%s is healthy\n", url)
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return err
			}
		}
	}
	return nil
}

func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 300))
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("requesting %s: got %s: %s", url, response.Status, body)
	}
	return nil
}
