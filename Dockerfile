# The image of headgate: a static binary, certificate authorities, and a folder for state. deploy/image_test.go
# carries out these steps without Docker. Each RUN writes below /out only, and the last stage has nothing else.
#
#   docker build --build-arg VERSION=v1.2.3 -t headgate:v1.2.3 .
#   docker run -p 127.0.0.1:8080:8080 -e HEADGATE_OPEN=true -v headgate:/var/lib/headgate headgate:v1.2.3
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What the binary says of itself, and what it leaves out: make build has the same.
ARG VERSION=""
ARG COMMIT=""
ARG DATE=""
ARG TAGS="headgate_otel"
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags "$TAGS" -o /out/root/headgate \
    -ldflags "-s -w -X main.release=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" ./cmd/headgate
RUN mkdir -p /out/root/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /out/root/etc/ssl/certs/
RUN mkdir -m 0700 /out/state

FROM scratch
COPY --from=build /out/root/ /
COPY --from=build --chown=65532:65532 /out/state /var/lib/headgate
# A container is reached from outside at addresses that are no loopback addresses. So the server starts with
# HEADGATE_TOKENS, HEADGATE_TLS_CLIENT_CA or HEADGATE_OPEN=true only: docs/access.md. Health and metrics need none.
ENV HEADGATE_HTTP=:8080 \
    HEADGATE_METRICS=:9090 \
    HEADGATE_STORE=sqlite:/var/lib/headgate/headgate.db \
    TMPDIR=/var/lib/headgate
USER 65532:65532
WORKDIR /var/lib/headgate
VOLUME /var/lib/headgate
EXPOSE 8080 8081 9090
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/headgate", "health", "--live"]
ENTRYPOINT ["/headgate"]
CMD ["serve"]
