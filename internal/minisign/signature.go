package minisign

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// ErrSignature says that a signature does not fit the message.
var ErrSignature = errors.New("the signature is not of this text")

// KeyError says that another key made a signature.
type KeyError struct{ Expected, Found PublicKey }

func (e *KeyError) Error() string {
	return fmt.Sprintf("expected a signature by the key %s, found one by %s", e.Expected.Name(), e.Found.Name())
}

// Sign returns the content of a signature file for a message. Each comment is one line; the trusted one is signed too.
func (k PrivateKey) Sign(message []byte, untrustedComment, trustedComment string) ([]byte, error) {
	if strings.ContainsAny(untrustedComment+trustedComment, "\r\n") ||
		len(untrustedComment)+len(trustedComment) > maxText/2 {
		return nil, errors.New("a comment of a signature is one short line")
	}
	hash := blake2b.Sum512(message)
	signature := ed25519.Sign(k.Key, hash[:])
	raw := append([]byte(prehashed), k.ID[:]...)
	global := ed25519.Sign(k.Key, append(append([]byte{}, signature...), trustedComment...))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, "%s%s\n%s\n%s%s\n%s\n", untrusted, untrustedComment, encode(append(raw, signature...)),
		trusted, trustedComment, encode(global)), nil
}

// Verify checks the text of a signature of a message and returns its trusted comment. The error is a [*FormatError],
// a [*KeyError] or [ErrSignature].
func (k PublicKey) Verify(message, signature []byte) (trustedComment string, err error) {
	l, err := lines(signature, 4, "a signature")
	if err != nil {
		return "", err
	}
	raw, err := decode(l[1], 2+8+ed25519.SignatureSize, "a signature", prehashed, algorithm)
	if err != nil {
		return "", err
	}
	comment, ok := strings.CutPrefix(l[2], trusted)
	if !ok {
		return "", &FormatError{"a trusted comment in line 3 of the signature", "none"}
	}
	global, err := base64.StdEncoding.Strict().DecodeString(l[3])
	if err != nil || len(global) != ed25519.SignatureSize {
		return "", &FormatError{"the signature of the trusted comment in line 4", "other text"}
	}
	if [8]byte(raw[2:10]) != k.ID {
		return "", &KeyError{k, PublicKey{ID: [8]byte(raw[2:10])}}
	}
	if string(raw[:2]) == prehashed {
		hash := blake2b.Sum512(message)
		message = hash[:]
	}
	if !ed25519.Verify(k.Key, message, raw[10:]) ||
		!ed25519.Verify(k.Key, append(append([]byte{}, raw[10:]...), comment...), global) {
		return "", ErrSignature
	}
	return comment, nil
}
