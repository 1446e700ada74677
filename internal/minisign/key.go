package minisign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/scrypt"
)

// PublicKey verifies signatures.
type PublicKey struct {
	// ID identifies the key; signatures contain it.
	ID  [8]byte
	Key ed25519.PublicKey
}

// PrivateKey makes signatures.
type PrivateKey struct {
	ID  [8]byte
	Key ed25519.PrivateKey
}

const (
	algorithm   = "Ed" // of keys, and of signatures over the message itself
	prehashed   = "ED" // of signatures over the message's BLAKE2b-512 hash
	encrypted   = "Sc" // scrypt
	unencrypted = "\x00\x00"
	checksum    = "B2" // BLAKE2b-256

	untrusted = "untrusted comment: "
	trusted   = "trusted comment: "

	// maxText is the largest size of the text of a key or a signature: minisign allows comments of 8 KiB.
	maxText = 64 << 10
)

// FormatError says that a text is not a key or a signature.
type FormatError struct{ Expected, Found string }

func (e *FormatError) Error() string { return "expected " + e.Expected + ", found " + e.Found }

// ErrPassword says that the password does not decrypt the private key.
var ErrPassword = errors.New("the password is not that of the key, or the key is damaged")

// lines splits a text into n lines. The last one may lack a newline.
func lines(text []byte, n int, what string) ([]string, error) {
	if len(text) > maxText {
		return nil, &FormatError{what, fmt.Sprintf("%d bytes", len(text))}
	}
	var out []string
	for line := range bytes.Lines(text) {
		out = append(out, string(bytes.TrimRight(line, "\r\n")))
	}
	if len(out) != n {
		return nil, &FormatError{fmt.Sprintf("%s of %d lines", what, n), fmt.Sprintf("%d", len(out))}
	}
	return out, nil
}

// decode decodes a base64 line of size bytes, whose first bytes must name one of the algorithms.
func decode(line string, size int, what string, algorithms ...string) ([]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(line)
	if err != nil {
		return nil, &FormatError{what + " in base64", "other text"}
	}
	if len(raw) != size {
		return nil, &FormatError{fmt.Sprintf("%s of %d bytes", what, size), fmt.Sprintf("%d", len(raw))}
	}
	for _, a := range algorithms {
		if string(raw[:2]) == a {
			return raw, nil
		}
	}
	return nil, &FormatError{fmt.Sprintf("%s of the algorithm %q", what, algorithms[0]), fmt.Sprintf("%q", raw[:2])}
}

// ParsePublicKey reads a public key: the text of a file of it, or its second line alone.
func ParsePublicKey(text []byte) (PublicKey, error) {
	var k PublicKey
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("untrusted comment:")) {
		l, err := lines(text, 2, "a public key")
		if err != nil {
			return k, err
		}
		text = []byte(l[1])
	}
	if len(text) > maxText {
		return k, &FormatError{"a public key", fmt.Sprintf("%d bytes", len(text))}
	}
	raw, err := decode(string(text), 2+8+ed25519.PublicKeySize, "a public key", algorithm)
	if err != nil {
		return k, err
	}
	copy(k.ID[:], raw[2:])
	k.Key = raw[10:]
	return k, nil
}

// Text returns the content of a key file.
func (k PublicKey) Text() []byte {
	raw := append([]byte(algorithm), k.ID[:]...)
	return fmt.Appendf(nil, "%sminisign public key %s\n%s\n", untrusted, k.Name(),
		base64.StdEncoding.EncodeToString(append(raw, k.Key...)))
}

// Name returns the key's ID as minisign writes it.
func (k PublicKey) Name() string { return fmt.Sprintf("%016X", binary.LittleEndian.Uint64(k.ID[:])) }

// Public returns the public key that verifies signatures of k.
func (k PrivateKey) Public() PublicKey {
	return PublicKey{k.ID, k.Key.Public().(ed25519.PublicKey)}
}

// Sizes of the parts of a private key after the algorithms and the salt: limits, then what a password encrypts.
const (
	saltSize   = 32
	secretSize = 8 + ed25519.PrivateKeySize + blake2b.Size256
	keySize    = 2 + 2 + 2 + saltSize + 8 + 8 + secretSize
)

// ParsePrivateKey reads the text of a private key's file. password is called where the key is encrypted; with
// another password than the key's the error is [ErrPassword].
func ParsePrivateKey(text []byte, password func() ([]byte, error)) (PrivateKey, error) {
	var k PrivateKey
	l, err := lines(text, 2, "a private key")
	if err != nil {
		return k, err
	}
	raw, err := decode(l[1], keySize, "a private key", algorithm)
	if err != nil {
		return k, err
	}
	kdf, sum := string(raw[2:4]), string(raw[4:6])
	salt, limits, secret := raw[6:6+saltSize], raw[6+saltSize:][:16], raw[6+saltSize+16:]
	if sum != checksum {
		return k, &FormatError{"a private key with the checksum " + checksum, fmt.Sprintf("%q", sum)}
	}
	switch kdf {
	case unencrypted:
	case encrypted:
		n, r, p, err := scryptParameters(binary.LittleEndian.Uint64(limits), binary.LittleEndian.Uint64(limits[8:]))
		if err != nil {
			return k, err
		}
		secretWord, err := password()
		if err != nil {
			return k, err
		}
		stream, err := scrypt.Key(secretWord, salt, n, r, p, secretSize)
		if err != nil {
			return k, err
		}
		subtle.XORBytes(secret, secret, stream)
	default:
		return k, &FormatError{"a private key that is encrypted with scrypt or not at all", fmt.Sprintf("%q", kdf)}
	}
	// minisign leaves the checksum of a key that is not encrypted at zero.
	sum256 := secret[secretSize-blake2b.Size256:]
	if subtle.ConstantTimeCompare(keyChecksum(secret), sum256) != 1 {
		if kdf == encrypted {
			return k, ErrPassword
		}
		if !bytes.Equal(sum256, make([]byte, blake2b.Size256)) {
			return k, &FormatError{"a private key with a right checksum", "another checksum: the key is damaged"}
		}
	}
	copy(k.ID[:], secret)
	k.Key = bytes.Clone(secret[8:][:ed25519.PrivateKeySize])
	if !bytes.Equal(k.Key, ed25519.NewKeyFromSeed(k.Key.Seed())) {
		return k, &FormatError{"a private key whose halves belong together", "others"}
	}
	return k, nil
}

// keyChecksum returns the checksum of the ID and the key, with which a secret begins.
func keyChecksum(secret []byte) []byte {
	sum := blake2b.Sum256(append([]byte(algorithm), secret[:8+ed25519.PrivateKeySize]...))
	return sum[:]
}

// Limits of the work to derive a key from a password: a little more than minisign's own keys need.
const (
	maxMemory     = 1 << 30
	maxOperations = 1 << 27
)

// scryptParameters turns libsodium's limits into scrypt's parameters, as crypto_pwhash_scryptsalsa208sha256 does.
func scryptParameters(operations, memory uint64) (n, r, p int, err error) {
	r = 8
	operations = max(operations, 32768)
	var most uint64 // bounds n
	if operations < memory/32 {
		most, p = operations/(uint64(r)*4), 1
	} else {
		most = memory / (uint64(r) * 128)
	}
	bits := 1
	for bits < 63 && uint64(1)<<bits <= most/2 {
		bits++
	}
	if p == 0 {
		p = int(min(operations/4/(1<<bits), 0x3fffffff)) / r
	}
	if operations > maxOperations || bits > 30 || p < 1 || 128*uint64(r)*uint64(p) > maxMemory ||
		128*uint64(r)*(1<<bits) > maxMemory {
		return 0, 0, 0, &FormatError{"a private key whose password takes at most 1 GiB to check",
			fmt.Sprintf("limits of %d operations and %d bytes", operations, memory)}
	}
	return 1 << bits, r, p, nil
}
