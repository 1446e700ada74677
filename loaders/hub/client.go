package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds of retries.
const (
	maxAttempts = 5                // attempts in a row that bring no new byte
	maxFailures = 100              // failed attempts for one file in all
	maxWait     = 2 * time.Minute  // the longest pause that a server may ask for
	idleTimeout = 60 * time.Second // the longest time without a byte
	leastBytes  = 64 << 10         // bytes of a file that must come in each idleTimeout but the last
	maxAnswer   = 64 << 20         // bytes of an answer that is not a file
	maxHops     = 10               // redirects that are followed
)

// client makes requests to one hub.
type client struct {
	options Options
	host    string // of the endpoint, with port
	http    *http.Client
}

func newClient(o Options) (*client, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, err
	}
	transport := o.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 30 * time.Second}).DialContext
		t.ResponseHeaderTimeout = idleTimeout
		t.DisableCompression = true // lengths are those of files
		transport = t
	}
	c := &client{options: o, host: u.Host}
	c.http = &http.Client{Transport: transport, CheckRedirect: c.redirect}
	return c, nil
}

// close closes the connections that wait for more requests, unless they are of a transport that the caller gave.
func (c *client) close() {
	if c.options.Transport == nil {
		c.http.CloseIdleConnections()
	}
}

// redirect keeps the token at the endpoint's host: net/http keeps it for subdomains and other ports too. A request for
// the description of a file ends at a redirect to another host, whose answer has all that is asked for.
func (c *client) redirect(next *http.Request, via []*http.Request) error {
	if len(via) >= maxHops {
		return fmt.Errorf("more than %d redirects", maxHops)
	}
	first := via[0].URL
	if next.URL.Scheme != "https" && next.URL.Scheme != first.Scheme {
		return fmt.Errorf("a redirect from %s to %s", first.Scheme, next.URL.Scheme)
	}
	elsewhere := next.URL.Host != first.Host
	for _, r := range via {
		elsewhere = elsewhere || r.URL.Host != first.Host
	}
	if elsewhere {
		next.Header.Del("Authorization")
		if next.Method == http.MethodHead {
			return http.ErrUseLastResponse
		}
	}
	return nil
}

// do makes one request. Header fields come in pairs.
func (c *client) do(ctx context.Context, method, address string, header ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "etc")
	r.Header.Set("Accept-Encoding", "identity")
	if c.options.Token != "" && r.URL.Host == c.host {
		r.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := c.http.Do(r)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) { // without the address, which may carry a signature
			err = of.Err
		}
		return nil, fmt.Errorf("%s: %w", c.host, err)
	}
	return response, nil
}

// statusError is an answer that is no success.
type statusError struct {
	what   string
	status int
	detail string
	after  time.Duration
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s: the hub answers %d %s", e.what, e.status, http.StatusText(e.status))
	if e.detail != "" {
		s += " (" + e.detail + ")"
	}
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		s += "; it may not exist, or need a token: set HF_TOKEN, and accept the model's terms on its page"
	case http.StatusNotFound:
		s += "; check the name and the revision"
	}
	return s
}

// retryable reports whether another attempt may do better.
func retryable(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.status == http.StatusTooManyRequests || status.status == http.StatusRequestTimeout ||
			status.status >= 500
	}
	var permanent *permanentError
	return !errors.As(err, &permanent)
}

// permanentError is an error after which another attempt would fail, too.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

func permanentf(format string, args ...any) error {
	return &permanentError{fmt.Errorf(format, args...)}
}

// checkStatus returns an error for an answer whose status is not one of those wanted.
func checkStatus(what string, r *http.Response, wanted ...int) error {
	for _, w := range wanted {
		if r.StatusCode == w {
			return nil
		}
	}
	e := &statusError{what: what, status: r.StatusCode, after: retryAfter(r.Header.Get("Retry-After"), time.Now())}
	for _, key := range []string{"X-Error-Message", "X-Error-Code"} {
		if v := r.Header.Get(key); v != "" && e.detail == "" {
			v = redact(v, r)
			e.detail = strings.ToValidUTF8(v[:min(len(v), 200)], "")
		}
	}
	return e
}

// redact takes the token out of what a hub says: it may repeat what it was sent.
func redact(text string, r *http.Response) string {
	for q := r.Request; q != nil; {
		if token := strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer "); token != "" {
			text = strings.ReplaceAll(text, token, "[token]")
		}
		if q.Response == nil { // that made this request by a redirect
			break
		}
		q = q.Response.Request
	}
	return text
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3); 0 for neither.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 1<<20)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// pause waits before attempt number n, from 1, after an error. It gives that error where waiting is of no use.
func (c *client) pause(ctx context.Context, n int, err error) error {
	wait := time.Second << min(n-1, 5)
	var status *statusError
	if errors.As(err, &status) && status.after > 0 {
		if status.after > maxWait {
			return fmt.Errorf("%w; it asks to wait for %s", err, status.after.Round(time.Second))
		}
		wait = status.after
	}
	c.options.logf("%v; trying again in %s", err, wait)
	var after <-chan time.Time
	if c.options.Wait != nil {
		after = c.options.Wait(wait)
	} else {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-after:
		return nil
	}
}

// retry calls f until it succeeds, fails for good, or has failed too often.
func (c *client) retry(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !retryable(err) || n == maxAttempts {
			return err
		}
		if err := c.pause(ctx, n, err); err != nil {
			return err
		}
	}
}

// get asks for something that is not a file of a repository, such as a list of files, and returns the answer.
func (c *client) get(ctx context.Context, what, address string) (body []byte, err error) {
	err = c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, 2*idleTimeout)
		defer cancel()
		response, err := c.do(ctx, http.MethodGet, address)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if err := checkStatus(what, response, http.StatusOK); err != nil {
			return err
		}
		body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
		if err == nil && len(body) > maxAnswer {
			err = permanentf("%s: expected at most %d bytes, found more", what, maxAnswer)
		}
		return err
	})
	return body, err
}

// resolve returns the address of a file at a commit.
func (c *client) resolve(r Repo, commit, file string) string {
	parts := strings.Split(file, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return fmt.Sprintf("%s/%s/resolve/%s/%s", c.options.Endpoint, r.Name, commit, strings.Join(parts, "/"))
}
