FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime
RUN pip install https://data.pyg.org/whl/torch-2.0.0%2Bcu117/torch_scatter-2.1.1%2Bpt20cu117-cp310-cp310-linux_x86_64.whl
RUN pip install torch_geometric==2.3.1 && python -c "import torch_geometric"
RUN wget -q https://example.org/data/zinc.zip -O /data/zinc.zip && unzip /data/zinc.zip -d /data
ENV DATA=/data
COPY train.py .
CMD ["python", "train.py"]
