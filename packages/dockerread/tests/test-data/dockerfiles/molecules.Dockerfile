FROM nvidia/cuda:11.7.1-cudnn8-runtime-ubuntu20.04
ARG PYTHON_VERSION=3.9
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    python${PYTHON_VERSION} python3-pip libxrender1 && \
    apt-get clean && rm -rf /var/lib/apt/lists/* /tmp/*
RUN update-alternatives --install /usr/bin/python python /usr/bin/python${PYTHON_VERSION} 1
RUN pip install --no-cache-dir torch==1.13.1+cu117 --extra-index-url https://download.pytorch.org/whl/cu117
RUN pip install --no-cache-dir torch-scatter -f https://data.pyg.org/whl/torch-1.13.1+cu117.html \
    && pip install --no-cache-dir torch-geometric rdkit-pypi
COPY src /opt/src
COPY configs /opt/configs
ENV PYTHONPATH=/opt/src
CMD ["python", "/opt/src/model/net.py"]
