# syntax=docker/dockerfile:1
ARG TORCH=1.13.1
ARG CUDA=11.6
FROM pytorch/pytorch:${TORCH}-cuda${CUDA}-cudnn8-devel
ARG TORCH
ARG CUDA_TAG=cu116
ENV DEBIAN_FRONTEND=noninteractive \
    TORCH_CUDA_ARCH_LIST="7.0 8.0+PTX" \
    FORCE_CUDA=1
RUN apt-get update -y \
    && apt-get install -y --no-install-recommends \
       build-essential \
       # needed by rendering
       libglib2.0-0 \
       libsm6 \
    && apt-get clean
RUN pip install torch-scatter torch-sparse -f https://data.pyg.org/whl/torch-${TORCH}+${CUDA_TAG}.html
RUN pip install torch-geometric==2.3.1 "networkx<3" 'ogb>=1.3'
USER root
EXPOSE 8888
LABEL maintainer="someone" version="0.1"
ENTRYPOINT ["/bin/bash"]
