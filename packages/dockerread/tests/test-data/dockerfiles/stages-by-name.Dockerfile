FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime AS base
RUN pip install torch_geometric
FROM base AS dev
RUN pip install pytest black
FROM base AS final
RUN pip install ogb
LABEL org.opencontainers.image.source=https://github.com/example/mine
ONBUILD COPY . /app
