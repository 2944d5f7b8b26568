FROM nvcr.io/nvidia/pytorch:23.10-py3
WORKDIR /workspace/gnn
ADD requirements.txt /workspace/gnn/
RUN pip install --no-cache-dir -r requirements.txt
RUN pip install torch_geometric && pip install git+https://github.com/snap-stanford/ogb.git@v1.3.6
ADD train.py .
EXPOSE 6006/tcp
VOLUME /data
