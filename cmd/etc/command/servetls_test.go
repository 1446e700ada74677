package command

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certificate writes a certificate of 127.0.0.1, signed by itself, with its key, and returns clients' trust in it.
func certificate(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, &secret.PublicKey, secret)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(secret)
	require.NoError(t, err)
	all := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	require.NoError(t, os.WriteFile(cert, all, 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(all))
	return pool
}

// TestServeTLS: with --tls-cert and --tls-key the server speaks https, and nothing older than TLS 1.2.
func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	f := serveFlags{host: "127.0.0.1", tlsCert: filepath.Join(dir, "cert.pem"), tlsKey: filepath.Join(dir, "key.pem")}
	_, err := f.listen()
	require.ErrorContains(t, err, "--tls-cert "+f.tlsCert)
	trust := certificate(t, f.tlsCert, f.tlsKey)
	l, err := f.listen()
	require.NoError(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "fine") //nolint:errcheck // the client tells
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	get := func(c *tls.Config) (string, error) {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
		r, err := client.Get("https://" + l.Addr().String())
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return string(b), err
	}
	text, err := get(&tls.Config{RootCAs: trust})
	require.NoError(t, err)
	require.Equal(t, "fine", text)
	_, err = get(&tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "protocol version")
	_, err = get(&tls.Config{})
	require.Error(t, err, "nobody trusts it")
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, http.ErrServerClosed)
}
