FROM pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime
COPY . /src/mine
WORKDIR /src/mine
RUN pip install -e .
RUN python -c "import torch; print(torch.__version__)"
