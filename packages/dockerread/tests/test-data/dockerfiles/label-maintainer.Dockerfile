FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04
LABEL maintainer="gnn@example.org" version="0.3"
ARG DEBIAN_FRONTEND=noninteractive
ENV LANG=C.UTF-8 LC_ALL=C.UTF-8
RUN apt-get update -y \
    && apt-get install -y --no-install-recommends python3-pip python3-dev build-essential git wget \
    && apt-get clean
RUN ln -s /usr/bin/python3 /usr/bin/python
RUN python -m pip install --upgrade pip setuptools wheel
RUN pip install torch==2.1.0 torchvision==0.16.0 --index-url https://download.pytorch.org/whl/cu118
RUN pip install torch-geometric==2.4.0
RUN pip install torch-scatter torch-sparse -f https://data.pyg.org/whl/torch-2.1.0+cu118.html
COPY . /app
WORKDIR /app
ENTRYPOINT ["python", "train.py"]
