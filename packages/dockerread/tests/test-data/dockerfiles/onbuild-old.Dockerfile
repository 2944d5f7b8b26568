FROM pytorch/pytorch:1.9.0-cuda11.1-cudnn8-runtime
MAINTAINER gnn <gnn@example.org>
RUN conda install -y pyg -c pyg -c conda-forge && conda clean --all --yes
RUN pip install wandb==0.12.1 pytorch-lightning==1.4.2
ADD train.py /code/train.py
ONBUILD RUN pip install -r requirements.txt
WORKDIR /code
