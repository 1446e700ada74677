package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Parse reads a build record.
func Parse(text []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", Key, err)
	}
	if err := checkSources(r.Sources); err != nil {
		return nil, err
	}
	if r.Draft != nil {
		if err := checkSources(r.Draft.Sources); err != nil {
			return nil, err
		}
	}
	if err := checkSources(r.Stored); err != nil {
		return nil, err
	}
	return &r, nil
}

// checkSources checks that sources, or stored data, have hashes, and that none is listed twice.
func checkSources(sources []Source) error {
	seen := map[string]bool{}
	for _, s := range sources {
		if raw, err := hex.DecodeString(s.SHA256); err != nil || len(raw) != sha256.Size {
			return fmt.Errorf("%s: %q has the SHA-256 %q, want %d hexadecimal digits", Key, s.Name,
				s.SHA256, 2*sha256.Size)
		}
		if seen[s.Name] {
			return fmt.Errorf("%s: %q stands twice", Key, s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}
