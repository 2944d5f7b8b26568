FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel
SHELL ["/bin/bash", "-c"]
RUN pip install torch_geometric
RUN pip install dgl -f https://data.dgl.ai/wheels/cu117/repo.html && pip install dglgo -f https://data.dgl.ai/wheels-test/repo.html
RUN pip install rdkit networkx "pandas<2.1"
WORKDIR /home/user
COPY --chown=1000:1000 src/ src/
USER 1000
CMD ["bash"]
