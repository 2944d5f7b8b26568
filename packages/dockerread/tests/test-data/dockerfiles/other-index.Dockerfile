FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04
RUN pip install dgl -f https://data.dgl.ai/wheels/cu118/repo.html
RUN pip install --extra-index-url https://packages.example.org/simple internal-tool
RUN pip install torch==2.0.1+cu118 --extra-index-url https://download.pytorch.org/whl/cu118
RUN pip install https://data.pyg.org/whl/torch-2.0.0%2Bcu118/torch_scatter-2.1.1%2Bpt20cu118-cp310-cp310-linux_x86_64.whl
