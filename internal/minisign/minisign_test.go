package minisign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/scrypt"
)

// What minisign 0.11 wrote: a key pair without a password (-G -W), and its signatures of message.
const (
	message   = "some text\n"
	publicKey = `untrusted comment: minisign public key 1EEA760EDF2F75C3
RWTDdS/fDnbqHrp1GxK2FI1XaEetmsaVUUvOVgPBlbzgL/wcIGP7nMug
`
	secretKey = `untrusted comment: minisign encrypted secret key
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAw3Uv3w526h7LSemtwArtKooe/NGQXBljt4EEPwFS1jArgpER/GIz67p1GxK2FI1XaEetmsaVUUvOVgPBlbzgL/wcIGP7nMugAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
`
	signature = `untrusted comment: sig
RUTDdS/fDnbqHro1EcKtm+7v/suJck6LyLS67OerKX40XG31id5DWtcz88gsjnDtgmyy44mr8AeZZS/S/Hik3QbDNyn1Tznkngw=
trusted comment: a trusted comment
yeRjjBnaHy7kdWPbpl0Bcr46T5vP+OC02+EsZO3IHPHWluZ9LjsyjIweZoC7cbkTznp+/rnypIitoyRPbWb+CQ==
`
	// of the older kind (-l), over the message itself
	legacySignature = `untrusted comment: sig
RWTDdS/fDnbqHpDVrKpOV10KKeQU/ZazPo/jrS688zQmt2rGXODtrH7bOZalDm6CvJIqOQFJipLne1F6IT4w2QRB0dA24/QY4Q0=
trusted comment: legacy
rdKMSEUOAA8PhzDZnDVg3sbXwgbulaEtZy1gVYw5iP2Tb9nKaarLkybof/nhe4E+uELD/lfCteD1rnhs2PSACg==
`
)

// lowCost encrypts a private key as minisign does, with limits that take no time.
func lowCost(t testing.TB, key PrivateKey, password string, operations, memory uint64) []byte {
	t.Helper()
	salt := bytes.Repeat([]byte("salt"), 8)
	secret := append(append([]byte{}, key.ID[:]...), key.Key...)
	secret = append(secret, keyChecksum(secret)...)
	n, r, p, err := scryptParameters(operations, memory)
	require.NoError(t, err)
	stream, err := scrypt.Key([]byte(password), salt, n, r, p, len(secret))
	require.NoError(t, err)
	subtle.XORBytes(secret, secret, stream)
	raw := append([]byte("EdScB2"), salt...)
	raw = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(raw, operations), memory)
	return []byte("untrusted comment: x\n" + base64.StdEncoding.EncodeToString(append(raw, secret...)) + "\n")
}

func noPassword() ([]byte, error) { return nil, errors.New("the key asks for a password") }

func private(t testing.TB) PrivateKey {
	t.Helper()
	k, err := ParsePrivateKey([]byte(secretKey), noPassword)
	require.NoError(t, err)
	return k
}

func TestKeys(t *testing.T) {
	public, err := ParsePublicKey([]byte(publicKey))
	require.NoError(t, err)
	require.Equal(t, "1EEA760EDF2F75C3", public.Name())
	require.Equal(t, publicKey, string(public.Text()))
	short, err := ParsePublicKey([]byte(strings.Split(publicKey, "\n")[1]))
	require.NoError(t, err)
	require.Equal(t, public, short)
	require.Equal(t, public, private(t).Public())
}

func TestEncryptedKeys(t *testing.T) {
	k := private(t)
	text := lowCost(t, k, "secret", 32768, 16<<20)
	got, err := ParsePrivateKey(text, func() ([]byte, error) { return []byte("secret"), nil })
	require.NoError(t, err)
	require.Equal(t, k, got)
	_, err = ParsePrivateKey(text, func() ([]byte, error) { return []byte("Secret"), nil })
	require.ErrorIs(t, err, ErrPassword)
	_, err = ParsePrivateKey(text, noPassword)
	require.ErrorContains(t, err, "asks for a password")
}

// TestScryptParameters: those of libsodium for the limits that minisign uses (sensitive, and what it falls
// back to), and for some at the edges.
func TestScryptParameters(t *testing.T) {
	for _, test := range []struct {
		operations, memory uint64
		n, r, p            int
	}{
		{33554432, 1 << 30, 1 << 20, 8, 1},
		{524288, 16 << 20, 1 << 14, 8, 1},
		{0, 0, 2, 8, 512},
		{32768, 16 << 20, 1 << 10, 8, 1},
	} {
		n, r, p, err := scryptParameters(test.operations, test.memory)
		require.NoError(t, err)
		require.Equal(t, []int{test.n, test.r, test.p}, []int{n, r, p}, test)
	}
	for _, limits := range [][2]uint64{{1 << 40, 1 << 40}, {1 << 63, 1 << 63}, {1<<64 - 1, 1<<64 - 1}, {1 << 62, 0}} {
		_, _, _, err := scryptParameters(limits[0], limits[1])
		var format *FormatError
		require.ErrorAs(t, err, &format)
	}
}

func TestVerify(t *testing.T) {
	public := private(t).Public()
	comment, err := public.Verify([]byte(message), []byte(signature))
	require.NoError(t, err)
	require.Equal(t, "a trusted comment", comment)
	comment, err = public.Verify([]byte(message), []byte(legacySignature))
	require.NoError(t, err)
	require.Equal(t, "legacy", comment)
	other := PublicKey{ID: [8]byte{1}, Key: public.Key}
	same := PublicKey{ID: public.ID, Key: make(ed25519.PublicKey, ed25519.PublicKeySize)}
	for _, test := range []struct {
		name               string
		key                PublicKey
		message, signature string
		want               string
	}{
		{"other message", public, message + "x", signature, "the signature is not of this text"},
		{"other message, older kind", public, message + "x", legacySignature, "the signature is not of this text"},
		{"other trusted comment", public, message, strings.Replace(signature, "a trusted", "A trusted", 1),
			"the signature is not of this text"},
		{"other key", other, message, signature,
			"expected a signature by the key 0000000000000001, found one by 1EEA760EDF2F75C3"},
		{"other key of the same name", same, message, signature, "the signature is not of this text"},
		{"kinds mixed up", public, message, strings.Replace(signature, "RUTDd", "RWTDd", 1),
			"the signature is not of this text"},
		{"no trusted comment", public, message, strings.Replace(signature, "\ntrusted", "\nuntrusted", 1),
			"expected a trusted comment in line 3"},
		{"three lines", public, message, strings.Join(strings.SplitAfter(signature, "\n")[:3], ""),
			"expected a signature of 4 lines, found 3"},
		{"no base64", public, message, strings.Replace(signature, "RUTDd", "RU!Dd", 1),
			"expected a signature in base64"},
		{"short", public, message, strings.Replace(signature, "RUTDd", "d", 1), "expected a signature"},
		{"another algorithm", public, message, strings.Replace(signature, "RUTDd", "RATDd", 1),
			"expected a signature of the algorithm"},
		{"no global signature", public, message, signature[:strings.LastIndex(signature, "yeR")] + "AAAA\n",
			"expected the signature of the trusted comment in line 4"},
	} {
		_, err := test.key.Verify([]byte(test.message), []byte(test.signature))
		require.ErrorContains(t, err, test.want, test.name)
	}
}

// TestSign: what is signed is what minisign signs, byte for byte: Ed25519 leaves no choice.
func TestSign(t *testing.T) {
	got, err := private(t).Sign([]byte(message), "sig", "a trusted comment")
	require.NoError(t, err)
	require.Equal(t, signature, string(got))
	_, err = private(t).Sign([]byte(message), "a\nb", "")
	require.Error(t, err)
}

func TestWrongKeys(t *testing.T) {
	line := strings.Split(secretKey, "\n")[1]
	edit := func(f func(raw []byte)) string {
		raw, err := base64.StdEncoding.DecodeString(line)
		require.NoError(t, err)
		f(raw)
		return "untrusted comment: x\n" + base64.StdEncoding.EncodeToString(raw)
	}
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "expected a private key of 2 lines, found 0"},
		{"public", publicKey, "expected a private key of 158 bytes, found 42"},
		{"checksum", edit(func(raw []byte) { raw[len(raw)-1] = 1 }), "the key is damaged"},
		{"halves", edit(func(raw []byte) { raw[62] ^= 1 }), "whose halves belong together"},
		{"kdf", edit(func(raw []byte) { raw[2] = 'X' }), "encrypted with scrypt or not at all"},
		{"checksum algorithm", edit(func(raw []byte) { raw[5] = '3' }), `with the checksum B2, found "B3"`},
		{"limits", edit(func(raw []byte) { copy(raw[2:], encrypted); copy(raw[38:], bytes.Repeat([]byte{0xff}, 16)) }),
			"takes at most 1 GiB to check"},
		{"long", strings.Repeat("x", maxText+1), "expected a private key, found 65537 bytes"},
	} {
		_, err := ParsePrivateKey([]byte(test.text), noPassword)
		var format *FormatError
		require.ErrorAs(t, err, &format, test.name)
		require.ErrorContains(t, err, test.want, test.name)
	}
	for _, text := range []string{"", "x", secretKey, line, "untrusted comment: x\n", "untrusted comment: x\na\nb"} {
		_, err := ParsePublicKey([]byte(text))
		var format *FormatError
		require.ErrorAs(t, err, &format, text)
	}
}

// TestMinisign: the program accepts our signatures, and we accept its ones, where it is installed.
func TestMinisign(t *testing.T) {
	program, err := exec.LookPath("minisign")
	if err != nil {
		t.Skip("minisign is not installed; what it wrote is in the other tests")
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	run := func(args ...string) {
		out, err := exec.Command(program, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	pub, key, msg := filepath.Join(dir, "k.pub"), filepath.Join(dir, "k.key"),
		file("msg", strings.Repeat("text\n", 100))
	run("-G", "-W", "-p", pub, "-s", key)
	text, err := os.ReadFile(key)
	require.NoError(t, err)
	k, err := ParsePrivateKey(text, noPassword)
	require.NoError(t, err)
	ours, err := k.Sign([]byte(strings.Repeat("text\n", 100)), "ours", "signed by etc")
	require.NoError(t, err)
	run("-V", "-p", file("ours.pub", string(k.Public().Text())), "-m", msg, "-x", file("ours.minisig", string(ours)))
	run("-S", "-W", "-s", key, "-m", msg, "-t", "theirs")
	theirs, err := os.ReadFile(msg + ".minisig")
	require.NoError(t, err)
	comment, err := k.Public().Verify([]byte(strings.Repeat("text\n", 100)), theirs)
	require.NoError(t, err)
	require.Equal(t, "theirs", comment)
}

// FuzzText: any text is a key, a signature, or an error.
func FuzzText(f *testing.F) {
	for _, s := range []string{publicKey, secretKey, signature, legacySignature, ""} {
		f.Add([]byte(s))
	}
	public := private(f).Public()
	f.Fuzz(func(t *testing.T, text []byte) {
		if k, err := ParsePublicKey(text); err == nil {
			again, err := ParsePublicKey(k.Text())
			require.NoError(t, err)
			require.Equal(t, k, again)
		}
		ParsePrivateKey(text, noPassword) //nolint:errcheck // must only not panic
		if comment, err := public.Verify([]byte(message), text); err == nil {
			require.Contains(t, []string{"a trusted comment", "legacy"}, comment)
		}
	})
}
