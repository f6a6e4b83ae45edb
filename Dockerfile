# tova-bench for processors: one program in a small image, for x86-64 and aarch64 Linux.
#
#     docker build --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" -t tova-bench .
#     docker run --rm tova-bench run smoke
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" -v "$HOME/.cache/huggingface:/cache" tova-bench run my.yaml
#
# Podman and buildah accept the same file and options. The program respects the limits of `--memory` and `--cpus`. On
# clusters without Docker: `apptainer build tova-bench.sif docker-archive://tova-bench.tar`.
# For NVIDIA GPUs use Dockerfile.cuda.

ARG RUST=1.95
FROM docker.io/library/rust:${RUST}-slim-bookworm AS build
WORKDIR /src
# Build the dependencies, which take nearly all of the time, for an empty program. This layer is rebuilt only when the lock
# file changes.
COPY Cargo.toml Cargo.lock build.rs ./
COPY tools/pocket-worlds/Cargo.toml tools/pocket-worlds/
COPY python/Cargo.toml python/
RUN mkdir -p src benches/gpu configs/benchmarks tools/pocket-worlds/src python/src \
    && echo 'fn main() {}' > src/main.rs \
    && cp src/main.rs benches/read.rs \
    && cp src/main.rs benches/gpu/ \
    && cp src/main.rs tools/pocket-worlds/src/ \
    && touch src/lib.rs python/src/lib.rs \
    && cargo build --release --locked --bin tova-bench
COPY . .
# The commit named in result rows; .git is not in the build context.
ARG COMMIT=""
# The checkout's files are older than the build above, so cargo would not rebuild without `touch`.
RUN touch build.rs src/main.rs src/lib.rs \
    && TOVA_BENCH_COMMIT="$COMMIT" cargo build --release --locked --bin tova-bench \
    && strip target/release/tova-bench

FROM docker.io/library/debian:bookworm-slim
ARG COMMIT=""
LABEL org.opencontainers.image.title="tova-bench" \
      org.opencontainers.image.description="How small can a transformer's key-value cache be? Exact bounded-cache evaluation at the speed of a prefill." \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.revision="$COMMIT"
# Any user given by `--user` can write to both folders; downloads stay in the volume.
RUN useradd --uid 1000 --create-home bench \
    && mkdir --mode=1777 /cache /work
ENV HF_HOME=/cache
VOLUME /cache
COPY --from=build /src/LICENSE /src/LICENSE-MIT /src/LICENSE-APACHE /src/src/report/font/LICENSE-DejaVu.txt /usr/share/doc/tova-bench/
COPY --from=build /src/target/release/tova-bench /usr/local/bin/tova-bench
USER 1000
WORKDIR /work
ENTRYPOINT ["tova-bench"]
CMD ["--help"]
