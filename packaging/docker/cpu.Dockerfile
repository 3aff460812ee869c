# CPU ranks: the wheel, made on Debian 12, in an image that has Python, torch and no compiler.
#   docker build -f packaging/docker/cpu.Dockerfile -t zerocore:cpu .
#   docker run --rm zerocore:cpu python -m zerocore
# No docker has built it yet, nor has pip used the index of torch below. The steps of its RUN lines are those of
# tests/fresh/wheel.sh bookworm, which runs them in empty Debian 12 roots, with PyPI's torch and with CUDA.
FROM debian:12 AS build
# torch without CUDA, smaller. Empty: PyPI's torch.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_EXTRA_INDEX_URL=$TORCH_INDEX
COPY . /source
RUN cd /source && scripts/install_dependencies.sh --python && scripts/make_wheel.sh /dist

FROM debian:12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_EXTRA_INDEX_URL=$TORCH_INDEX
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
COPY --from=build /dist /dist
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir /dist/zerocore-*.whl transformers accelerate
ENV PATH=/opt/venv/bin:$PATH
