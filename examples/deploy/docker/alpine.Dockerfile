# A service on Mallard in a container of Alpine, from the packages of a release. Until there is one,
# `scripts/release.sh x86_64-linux-musl` makes them in target/packages.
#   docker build -f examples/deploy/docker/alpine.Dockerfile -t lua-on-mallard target/packages
#   docker run --rm lua-on-mallard
#
# This image has not been built yet: there is neither Docker nor Alpine where Mallard is tested.
FROM alpine:3 AS mallard
COPY libmallard0_*.apk /packages/
RUN apk add --no-cache --allow-untrusted "/packages/libmallard0_"*"_$(apk --print-arch).apk" \
 && mkdir -p /out/lib \
 && cp /usr/lib/libmallard.so.0 /out/lib/

FROM alpine:3
RUN apk add --no-cache lua5.4
COPY --from=mallard /out/ /usr/local/
ENV LD_PRELOAD=/usr/local/lib/libmallard.so.0
ENV MALLARD_CONF=narenas:2,dirty_decay_ms:1000,dirty_max:25%
USER nobody
ENTRYPOINT ["lua5.4"]
CMD ["-e", "for line in io.lines('/proc/self/maps') do if line:find('libmallard') then print(line) end end"]
