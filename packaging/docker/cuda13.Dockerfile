# Ranks on GPUs and CPUs: the wheel, made on Debian 12 by the nvcc of PyPI, in an image that has Python, torch, torch's
# CUDA 13 libraries and no compiler. The host gives the driver: its NVIDIA Container Toolkit reads the two variables.
#   docker build -f packaging/docker/cuda13.Dockerfile -t zerocore:cuda13 .
#   docker run --rm --gpus all --shm-size 8g zerocore:cuda13 python -m zerocore
# No docker has built it yet, and no GPU has run its image. The steps of its RUN lines are those of tests/fresh/wheel.sh bookworm,
# which runs them in empty Debian 12 roots.
FROM debian:12 AS build
# The GPUs, as CMake takes them; empty: Ampere, Hopper and later.
ARG CUDAARCHS
COPY . /source
RUN cd /source && scripts/install_dependencies.sh --python && scripts/make_wheel.sh --cuda /dist

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
COPY --from=build /dist /dist
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir /dist/zerocore-*.whl transformers accelerate
ENV PATH=/opt/venv/bin:$PATH NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
