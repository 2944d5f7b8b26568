# syntax=docker/dockerfile:1.7
FROM python:3.11-slim
RUN --mount=type=bind,source=requirements.txt,target=/tmp/list.txt \
    --mount=type=cache,target=/root/.cache/pip \
    pip install -r /tmp/list.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf pip install -i https://pypi.tuna.tsinghua.edu.cn/simple rich
RUN bash -lc "source activate base && pip install tqdm"
RUN pip install torch_scatter -f https://pytorch-geometric.com/whl/torch-2.0.0+cu118.html
RUN MAKE_FAST=1 FORCE_CUDA=1 pip install --no-binary pynauty pynauty
RUN apt-get update && apt-get install -y graphviz=2.42.2-7 python3-networkx
WORKDIR /opt/mine
COPY train.py .
ENTRYPOINT ["tini", "--", "poetry", "run"]
CMD ["python", "train.py"]
