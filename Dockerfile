# A static etc alone in an image, for CPUs: scratch has no C library, which the loader of CUDA needs.
#
#   docker build -t etc .
#   docker run --rm -v "$PWD:/models" etc export /models/checkpoint -o /models/model.pte
#   docker run --rm -v "$PWD:/models:ro" -p 8080:8080 etc serve /models/model.pte --host 0.0.0.0 --api-key-file /models/keys
#
# The folder that is mounted must be writable for user 65532 where etc writes to it (or give --user).

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# With .git, so that Go stamps the tag and the commit into the binary.
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=true -tags=nocuda -o /out/etc ./cmd/etc
# Where etc writes: temporary files, caches below its home, and the folder that it starts in.
RUN mkdir -p /writable/tmp /writable/var/lib/etc /writable/models

FROM scratch
COPY --from=build /out/etc /usr/local/bin/etc
COPY --from=build --chown=65532:65532 /writable/ /
# Certificates, for fetching checkpoints from the hub.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENV HOME=/var/lib/etc
WORKDIR /models
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/etc"]
