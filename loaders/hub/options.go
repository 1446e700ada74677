package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options say where a hub and its cache are.
type Options struct {
	Endpoint string // "https://huggingface.co"
	Token    string // "" for none
	Cache    string // folder with the folders of repositories
	Offline  bool   // use what the cache has
	Jobs     int    // files at a time; 0 for 4
	// Unverified accepts files for which the hub gives no hash, so that they cannot be checked.
	Unverified bool

	// Progress is called with the bytes that are there and all bytes, from any goroutine; nil for nobody.
	Progress func(done, total int64)
	// Log is called with what the user should know; nil for nobody.
	Log func(format string, args ...any)

	// Transport makes the requests; nil for http.DefaultTransport with timeouts.
	Transport http.RoundTripper
	// Wait sleeps between retries; nil for a sleep that ends with the context.
	Wait func(d time.Duration) <-chan time.Time
}

// Environment reads the variables of Hugging Face's libraries: HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_CACHE,
// HF_HOME, HF_HUB_OFFLINE, and XDG_CACHE_HOME where HF_HOME is not set.
func Environment(getenv func(string) string) (Options, error) {
	o := Options{Endpoint: "https://huggingface.co", Token: strings.TrimSpace(getenv("HF_TOKEN")),
		Cache: getenv("HF_HUB_CACHE")}
	if v := strings.TrimRight(getenv("HF_ENDPOINT"), "/"); v != "" {
		o.Endpoint = v
	}
	if u, err := url.Parse(o.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return o, fmt.Errorf("HF_ENDPOINT %q: expected the address of a hub, like https://huggingface.co", o.Endpoint)
	}
	switch v := strings.ToUpper(getenv("HF_HUB_OFFLINE")); v {
	case "", "0", "OFF", "NO", "FALSE":
	case "1", "ON", "YES", "TRUE":
		o.Offline = true
	default:
		return o, fmt.Errorf("HF_HUB_OFFLINE %q: expected 0 or 1", v)
	}
	home := getenv("HF_HOME")
	if home == "" {
		cache := getenv("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil && o.Cache == "" {
				return o, fmt.Errorf("the hub's cache: %w; set HF_HOME", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	if o.Cache == "" {
		o.Cache = filepath.Join(home, "hub")
	}
	if o.Token == "" {
		path := getenv("HF_TOKEN_PATH")
		if path == "" {
			path = filepath.Join(home, "token")
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return o, fmt.Errorf("the hub's token: %w", err)
		}
		o.Token = strings.TrimSpace(string(text))
	}
	if strings.ContainsAny(o.Token, "\r\n") {
		return o, fmt.Errorf("the hub's token: expected one line")
	}
	return o, nil
}

func (o Options) logf(format string, args ...any) {
	if o.Log != nil {
		o.Log(format, args...)
	}
}
