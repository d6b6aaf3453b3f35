# plsh as an image: docker build -t plsh . && docker run --rm -v "$PWD:/data" plsh generate --model ..
# Not tested: the machines that build and test plsh have no Docker.
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    gcc libc6-dev cmake ninja-build pkg-config \
    librandom123-dev libjansson-dev libpcre2-dev libutf8proc-dev libmicrohttpd-dev
COPY . /plsh
RUN cmake -S /plsh -B /build -G Ninja -DPLSH_WITH_LM=ON -DPLSH_WITH_MPI=OFF -DPLSH_BUILD_SHARED=OFF \
    && cmake --build /build && cmake --install /build --prefix /opt/plsh --component program

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    libjansson4 libpcre2-8-0 libutf8proc2 libmicrohttpd12 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/plsh /usr/local
RUN useradd --create-home plsh
USER plsh
WORKDIR /data
ENTRYPOINT ["plsh"]
CMD ["--help"]
