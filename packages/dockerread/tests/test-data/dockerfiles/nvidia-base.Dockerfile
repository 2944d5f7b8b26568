FROM nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04
SHELL ["/bin/bash", "-c"]
RUN apt-get update && apt-get install -y python3 python3-pip python3-dev vim wget && ln -s /usr/bin/python3 /usr/bin/python
RUN python3 -m pip install --upgrade pip setuptools wheel
RUN pip3 install torch==2.3.0 torchvision --index-url https://download.pytorch.org/whl/cu121
RUN pip3 install torch_geometric tensorboard
ENV PATH=/usr/local/cuda/bin:$PATH LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH
WORKDIR /app
COPY train.py configs/ /app/
CMD python train.py --data /data
