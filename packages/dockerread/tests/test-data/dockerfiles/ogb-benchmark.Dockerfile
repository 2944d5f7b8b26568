# syntax=docker/dockerfile:1.4
ARG PYTORCH=1.13.1
ARG CUDA=11.6
FROM pytorch/pytorch:${PYTORCH}-cuda${CUDA}-cudnn8-runtime
ARG PYTORCH
ENV OMP_NUM_THREADS=4 \
    PYTHONUNBUFFERED=1
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install pyg-lib torch-scatter torch-sparse torch-cluster torch-geometric -f https://data.pyg.org/whl/torch-${PYTORCH}+cu116.html
RUN --mount=type=cache,target=/root/.cache/pip pip install ogb==1.3.6 tensorboard
VOLUME /data
COPY evaluate.py train.py ./
CMD python train.py --root /data
