FROM nvidia/cuda:11.8.0-devel-ubuntu20.04
COPY requirements-gnn.txt /tmp/
RUN pip install -r /tmp/requirements-gnn.txt
RUN python3 -m pip install torch_scatter torch_sparse -f https://data.pyg.org/whl/torch-2.1.0+cu118.html
