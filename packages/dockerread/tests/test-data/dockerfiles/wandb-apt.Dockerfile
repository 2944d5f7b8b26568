FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-devel
LABEL authors="us"
ENV DEBIAN_FRONTEND=noninteractive TZ=Europe/Berlin
ENV WANDB_DIR=/results \
    HYDRA_FULL_ERROR=1
RUN apt-get update -qq \
 && apt-get install -qq -y ffmpeg libsm6 libxext6 \
 && rm -rf /var/lib/apt/lists/*
RUN pip install -U pip
RUN pip install torch_geometric==2.5.3
RUN pip install torch_scatter torch_sparse torch_cluster -f https://data.pyg.org/whl/torch-2.3.1+cu121.html
RUN pip install wandb hydra-core
RUN mkdir -p /results
WORKDIR /results
COPY train.py /opt/train.py
ENTRYPOINT ["python", "/opt/train.py"]
CMD ["--help"]
