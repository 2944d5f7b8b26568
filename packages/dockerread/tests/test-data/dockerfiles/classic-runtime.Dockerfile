FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime

RUN apt-get update && apt-get install -y git libgl1-mesa-glx && rm -rf /var/lib/apt/lists/*
WORKDIR /workspace
COPY requirements.txt .
RUN pip install --no-cache-dir torch_geometric && \
    pip install pyg_lib torch_scatter torch_sparse torch_cluster torch_spline_conv \
      -f https://data.pyg.org/whl/torch-2.0.1+cu117.html
RUN pip install --no-cache-dir -r requirements.txt
COPY mypkg ./mypkg
CMD ["python", "-m", "mypkg.train"]
